package models

import (
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/norm"

	"likewise/models/search"
)

// The rules for input that several types share. The Validate method of a type applies them to its fields.

// FieldErrors collects the errors that Validate finds, so that a client receives all of them at once.
type FieldErrors []FieldError

// Check adds the fault of a field unless ok.
func (f *FieldErrors) Check(ok bool, field string, fault Fault) {
	if !ok {
		*f = append(*f, fault.In(field))
	}
}

// Err returns the errors as CodeInvalid; nil if there are none.
func (f FieldErrors) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &Error{Code: CodeInvalid, Message: "The request has invalid fields.", Fields: f}
}

// checkLength checks that a text has at most limit characters.
func (f *FieldErrors) checkLength(field, text string, limit int) {
	f.Check(utf8.RuneCountInString(text) <= limit, field, TooLong(limit))
}

// checkLine checks that a text is a clean line: see CleanLine.
func (f *FieldErrors) checkLine(field, text string) {
	if r, bad := refused(text, ""); bad {
		f.Check(false, field, NotALine().Saying("must be a single line without the character %s", codePoint(r)))
		return
	}
	f.Check(utf8.ValidString(text), field, NotALine().Saying("must be valid UTF-8"))
	f.Check(text == CleanLine(text), field,
		NotALine().Saying("must not begin or end with space, nor have invisible characters that mean nothing"))
}

// checkLines checks that a text of several lines has none of the characters that a line cannot have.
func (f *FieldErrors) checkLines(field, text string) {
	if r, bad := refused(text, "\n\r\t"); bad {
		f.Check(false, field, badCharacter(r))
	}
}

// badCharacter returns the fault of a text with a character that it cannot have.
func badCharacter(r rune) Fault {
	return Broken(FieldBadCharacters, "must not have the character "+codePoint(r))
}

// Limits on the fields of an account, in characters.
const (
	MinUsername    = 3
	MaxUsername    = 50
	MaxEmail       = 100
	MinPassword    = 8
	MaxPassword    = 128
	MaxDisplayName = 50
	MaxBio         = 500
	MaxAvatarURL   = 500
)

// usernamePattern permits plain ASCII only, so that no two names look alike and a mention in a text has a clear end.
var usernamePattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])$`)

// ValidUsername reports whether an account can have the name. Digits alone would be the id of an account in paths that
// have both.
func ValidUsername(name string) bool {
	return len(name) >= MinUsername && len(name) <= MaxUsername && usernamePattern.MatchString(name) &&
		strings.Trim(name, "0123456789") != ""
}

// checkUsername checks the name of an account.
func (f *FieldErrors) checkUsername(field, name string) {
	fault := BadFormat(FormatUsername, "")
	if len(name) < MinUsername || len(name) > MaxUsername {
		fault = WrongLength(len(name), MinUsername, MaxUsername)
	}
	f.Check(ValidUsername(name), field, fault.Saying("must be %d to %d letters (a-z), digits, '_', '.' or '-',"+
		" not digits alone, beginning with a letter or digit and ending with one or '_'", MinUsername, MaxUsername))
}

// NoEmailDomain ends the address of an account that has none. The column is unique and not null, and no mail can be
// sent to the reserved name "invalid" (RFC 2606).
const NoEmailDomain = ".invalid"

// checkEmail checks an e-mail address.
func (f *FieldErrors) checkEmail(field, email string) {
	fault := BadFormat(FormatEmail, "")
	if utf8.RuneCountInString(email) > MaxEmail {
		fault = TooLong(MaxEmail)
	}
	f.Check(validEmail(email), field, fault.Saying("must be an e-mail address of at most %d characters", MaxEmail))
}

// ValidateEmail checks an e-mail address, which came in field (CodeInvalid).
func ValidateEmail(field, email string) error {
	var f FieldErrors
	f.checkEmail(field, email)
	return f.Err()
}

func validEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	if err != nil || a.Address != s || utf8.RuneCountInString(s) > MaxEmail {
		return false
	}
	_, domain, _ := strings.Cut(s, "@")
	return strings.Contains(domain, ".") && !strings.HasSuffix(s, NoEmailDomain) && !strings.ContainsAny(s, " \"") &&
		!strings.ContainsFunc(s, isUnseen) && !strings.ContainsRune(s, utf8.RuneError) && s == CleanLine(s)
}

// checkAvatarURL checks the address of a picture; an empty one is none.
func (f *FieldErrors) checkAvatarURL(field, address string) {
	fault := BadFormat(FormatURL, "")
	if len(address) > MaxAvatarURL {
		fault = TooLong(MaxAvatarURL)
	}
	f.Check(address == "" || validAvatarURL(address) || ImageAt(address, "") != "", field,
		fault.Saying("must be an https URL of at most %d characters, without a user name, or the path of an image of "+
			"this site", MaxAvatarURL))
}

// validAvatarURL permits only URLs that every client reads in the same way: the characters of RFC 3986, and a host.
func validAvatarURL(s string) bool {
	outside := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }
	if len(s) > MaxAvatarURL || strings.ContainsFunc(s, outside) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && !strings.Contains(u.Host, "%") &&
		validPort(u)
}

func validPassword(p string) bool {
	n := utf8.RuneCountInString(p)
	return utf8.ValidString(p) && n >= MinPassword && n <= MaxPassword
}

// NormalizePassword returns the form of a password that is hashed: that of RFC 8265, in which the same characters are
// the same, whether a keyboard composes them or not. A password that the RFC does not allow is composed alone.
func NormalizePassword(password string) string {
	if normal, err := precis.OpaqueString.String(password); err == nil {
		return normal
	}
	return norm.NFC.String(password)
}

// checkPassword checks a new password in field: its length, and that it is neither among the most common passwords nor
// one of the account's own names, with or without digits after it.
func checkPassword(f *FieldErrors, field, password string, names ...string) {
	password = NormalizePassword(password)
	if !validPassword(password) {
		f.Check(false, field, WrongLength(utf8.RuneCountInString(password), MinPassword, MaxPassword))
		return
	}
	forms := []string{skeleton(password)}
	if bare := bareWord(password); bare != "" {
		forms = append(forms, skeleton(bare))
	}
	first, _ := utf8.DecodeRuneInString(password)
	common := strings.Trim(password, string(first)) == ""
	for _, form := range forms {
		_, listed := commonPasswords()[form]
		common = common || listed
	}
	if common {
		f.Check(false, field, Broken(FieldTooCommon,
			"must not be one of the most common passwords, nor a single word or name with digits after it"))
		return
	}
	for _, name := range names {
		for _, own := range []string{name, bareWord(name)} {
			for _, form := range forms {
				if own != "" && skeleton(own) == form {
					f.Check(false, field, Broken(FieldPersonal, "must not be the username, the display name or"+
						" the e-mail address of the account, nor that with digits after it"))
					return
				}
			}
		}
	}
}

// bareWord returns a password or name without the characters after its last letter.
func bareWord(s string) string {
	return strings.TrimRightFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// emailNames returns the names in an e-mail address: the address, and the part before the "@".
func emailNames(email string) []string {
	local, _, _ := strings.Cut(email, "@")
	return []string{email, local}
}

// checkTitle checks the title of a post or drop.
func (f *FieldErrors) checkTitle(title string) {
	f.Check(!showsNothing(title), "title", Missing())
	f.checkLength("title", title, MaxTitle)
	f.checkLine("title", title)
}

// checkContent checks the content of a post or comment.
func (f *FieldErrors) checkContent(content string) {
	f.Check(!showsNothing(content), "content", Missing())
	f.checkText(content)
}

// checkText checks content that may be empty.
func (f *FieldErrors) checkText(content string) {
	f.Check(len(content) <= MaxContent, "content", tooLarge(MaxContent))
	f.Check(utf8.ValidString(content), "content", Broken(FieldBadCharacters, "must be valid UTF-8"))
	if at := strings.IndexFunc(content, func(r rune) bool { return r == 0 || isNoncharacter(r) }); at >= 0 {
		r, _ := utf8.DecodeRuneInString(content[at:])
		f.Check(false, "content", badCharacter(r))
	}
}

// checkTags checks the tags of a post, in their normal form.
func (f *FieldErrors) checkTags(tags Tags) {
	f.Check(len(tags) <= MaxTags, "tags", WrongCount(len(tags), 0, MaxTags))
	f.Check(!slices.ContainsFunc(tags, func(name string) bool { return !ValidTag(name) }), "tags",
		BadFormat(FormatTag,
			fmt.Sprintf(`must each have 1 to %d letters or digits, and among them "+", "#", "." or "-"`, MaxTag)))
}

// MaxSiteName is the length of the name of a site, in characters.
const MaxSiteName = 50

// ValidateSiteName checks the name of a site (CodeInvalid). "" is valid: the site then has the name of its host.
func ValidateSiteName(name string) error {
	var f FieldErrors
	f.checkLength("name", name, MaxSiteName)
	f.checkLine("name", name)
	return f.Err()
}

// MaxReason is the length of the reason of a moderator's act, in characters.
const MaxReason = 500

// ValidateReason checks the reason of a moderator's act, which every such act has (CodeInvalid).
func ValidateReason(reason string) error {
	var f FieldErrors
	f.CheckReason("reason", reason)
	return f.Err()
}

// CheckReason checks the reason of a moderator's act, which came in field.
func (f *FieldErrors) CheckReason(field, reason string) {
	f.Check(strings.TrimSpace(reason) != "", field, Missing())
	f.checkLength(field, reason, MaxReason)
	f.checkLine(field, reason)
}

// ValidateSearch checks a text to search for, which came in field (CodeInvalid).
func ValidateSearch(field, text string) error {
	var fault Fault
	switch {
	case !utf8.ValidString(text):
		return Invalid(field, Broken(FieldBadCharacters, "must be valid UTF-8"))
	case strings.ContainsRune(text, 0):
		return Invalid(field, badCharacter(0))
	case utf8.RuneCountInString(text) > search.MaxQuery:
		fault = TooLong(search.MaxQuery)
	case showsNothing(text):
		fault = Missing()
	default:
		return nil
	}
	return Invalid(field, fault.Saying("must have 1 to %d characters", search.MaxQuery))
}
