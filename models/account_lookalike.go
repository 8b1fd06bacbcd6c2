package models

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/ccojocar/zxcvbn-go/data"
)

// lookalikes are the characters of ASCII that are read as letters, each with the letter. The lower-case "i" is among them,
// because "1" is read as "i" and as "l".
var lookalikes = strings.NewReplacer("0", "o", "1", "l", "i", "l", "|", "l", "!", "l", "3", "e", "4", "a", "@", "a", "5", "s", "$", "s",
	"7", "t", "8", "b", " ", "", "_", "", ".", "", "-", "")

// letterPairs are the pairs of letters that are read as one.
var letterPairs = strings.NewReplacer("rn", "m", "vv", "w")

// skeleton returns the form that names have in common which are read as the same: without case, separators, and the
// differences between look-alikes. Usernames are ASCII, so it knows no other scripts.
func skeleton(name string) string {
	return letterPairs.Replace(lookalikes.Replace(strings.ToLower(name)))
}

// reservedNames are usernames that seem to speak for the site, or to be no user.
var reservedNames = []string{
	"abuse", "admin", "administrator", "administrators", "admins", "all", "anonymous", "api", "bot", "deleted", "everyone", "help", "helpdesk",
	"here", "hostmaster", "info", "likewise", "mod", "moderation", "moderator", "moderators", "mods", "nobody", "noreply", "null", "official",
	"operator", "owner", "postmaster", "root", "security", "staff", "superuser", "support", "sysadmin", "sysop", "system", "team", "undefined", "webmaster",
}

// ReservedNames are usernames that nobody can register, by skeleton.
type ReservedNames map[string]bool

// NewReservedNames returns the built-in list with further names. A name that no account can have is an error.
func NewReservedNames(further []string) (ReservedNames, error) {
	reserved := ReservedNames{}
	for _, name := range reservedNames {
		reserved[skeleton(name)] = true
	}
	for _, name := range further {
		if !ValidUsername(name) {
			return nil, fmt.Errorf("%q is not a username", name)
		}
		reserved[skeleton(name)] = true
	}
	return reserved, nil
}

// Check returns CodeInvalid for a username that is reserved, or looks like one that is.
func (r ReservedNames) Check(username string) error {
	if r[skeleton(username)] {
		return Invalid("username", "is reserved, or looks like a name that is")
	}
	return nil
}

// commonPasswords returns the most common passwords, words and names that zxcvbn knows, 85,000 of them, by skeleton. It
// reads them when a password is first checked. The library's own package of lists reads them in every process that
// starts, which takes 60 ms.
var commonPasswords = sync.OnceValue(func() map[string]struct{} {
	common := map[string]struct{}{}
	for _, name := range []string{"Passwords", "English", "FemaleNames", "MaleNames", "Surnames"} {
		var file struct{ List []string }
		if err := json.Unmarshal(data.MustAsset("data/"+name+".json"), &file); err != nil {
			panic(fmt.Sprintf("list %s of zxcvbn: %v", name, err)) // it is a part of the program
		}
		for _, word := range file.List {
			common[skeleton(word)] = struct{}{}
		}
	}
	return common
})

// checkPassword holds a new password in field to the rules: its length, and that it is neither among the first that
// everybody tries nor one of the account's own names, whatever digits follow.
func checkPassword(f *fieldErrors, field, password string, names ...string) {
	if !validPassword(password) {
		f.check(false, field, passwordRule)
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
	f.check(!common, field, "must not be one of the most common passwords, nor a single word or name with digits after it")
	if common {
		return
	}
	for _, name := range names {
		for _, own := range []string{name, bareWord(name)} {
			for _, form := range forms {
				if own != "" && skeleton(own) == form {
					f.check(false, field, "must not be the username, the display name or the e-mail address of the account, nor that with digits after it")
					return
				}
			}
		}
	}
}

// bareWord returns a password or name without what follows its last letter.
func bareWord(s string) string {
	return strings.TrimRightFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

// emailNames returns the names that an e-mail address holds: itself, and what stands before the "@".
func emailNames(email string) []string {
	local, _, _ := strings.Cut(email, "@")
	return []string{email, local}
}
