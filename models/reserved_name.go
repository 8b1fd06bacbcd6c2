package models

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"github.com/ccojocar/zxcvbn-go/data"
	"golang.org/x/text/unicode/norm"
)

// lookalikes maps characters of ASCII that are read as letters to the letter. The lower-case "i" is among them, because
// "1" is read as "i" and as "l".
var lookalikes = strings.NewReplacer(
	"0", "o", "1", "l", "i", "l", "|", "l", "!", "l", "3", "e", "4", "a", "@", "a", "5", "s", "$", "s",
	"7", "t", "8", "b", " ", "", "_", "", ".", "", "-", "",
)

// letterPairs maps pairs of letters that are read as one letter to the letter.
var letterPairs = strings.NewReplacer("rn", "m", "vv", "w")

// skeleton returns the same form for all names that are read as the same: without case, separators, and the differences
// between look-alikes. Usernames are ASCII, so it supports no other scripts.
func skeleton(name string) string {
	return letterPairs.Replace(lookalikes.Replace(strings.ToLower(name)))
}

// lookalikeLetters maps letters of other scripts that are read as letters of ASCII to them.
var lookalikeLetters = strings.NewReplacer(
	"а",
	"a",
	"в",
	"b",
	"е",
	"e",
	"ё",
	"e",
	"к",
	"k",
	"м",
	"m",
	"н",
	"h",
	"о",
	"o",
	"р",
	"p",
	"с",
	"c",
	"т",
	"t",
	"у",
	"y",
	"х",
	"x",
	"ѕ",
	"s",
	"і",
	"i",
	"ї",
	"i",
	"ј",
	"j",
	"ԁ",
	"d",
	"ԛ",
	"q",
	"ԝ",
	"w",
	"ɩ",
	"i",
	"ı",
	"i",
	"ɑ",
	"a",
	"α",
	"a",
	"ε",
	"e",
	"ι",
	"i",
	"κ",
	"k",
	"ν",
	"v",
	"ο",
	"o",
	"ρ",
	"p",
	"τ",
	"t",
	"υ",
	"u",
	"χ",
	"x",
	"ѵ",
	"v",
)

// reservedNames are usernames that seem to speak for the site, or not to be users.
var reservedNames = []string{
	"abuse", "admin", "administrator", "administrators", "admins", "all", "anonymous", "api", "bot", "by-name",
	"by-prefix", "deleted", "everyone", "help", "helpdesk", "here", "hostmaster", "info", "likewise", "login", "logout",
	"mod", "moderation", "moderator", "moderators", "mods", "new", "nobody", "noreply", "null", "official", "operator",
	"owner", "postmaster", "register", "root", "security", "self", "settings", "signin", "signup", "staff", "superuser",
	"support", "sysadmin", "sysop", "system", "team", "undefined", "webmaster",
}

// ReservedNames is the set of usernames that nobody can register, by skeleton.
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
		return Invalid("username", Broken(FieldReserved, "is reserved, or looks like a name that is"))
	}
	return nil
}

// CheckDisplayName returns CodeInvalid for a display name that is read as a reserved name: without punctuation, accents
// and the differences between scripts.
func (r ReservedNames) CheckDisplayName(name string) error {
	letters := strings.Map(func(c rune) rune {
		if unicode.In(c, unicode.L, unicode.N) || strings.ContainsRune("|!@$", c) {
			return c
		}
		return -1
	}, norm.NFKD.String(name))
	if r[skeleton(lookalikeLetters.Replace(strings.ToLower(letters)))] {
		return Invalid("display_name", Broken(FieldReserved, "is reserved, or looks like a name that is"))
	}
	return nil
}

// commonPasswords returns the 85,000 most common passwords, words and names in the lists of zxcvbn, by skeleton. It
// reads them when a password is first checked. The library's own package of lists reads them when a process starts,
// which takes 60 ms.
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
