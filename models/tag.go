package models

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits on tags.
const (
	MaxTags = 5  // of a post
	MaxTag  = 30 // characters
)

// Tags are the names of a post's tags, in the author's order.
type Tags []string

// tagPattern matches "node.js", ".net", "c++" and "c#", but not "-" or "a.", which begin or end in punctuation.
var tagPattern = regexp.MustCompile(
	`^\.?[\p{L}\p{N}]([\p{L}\p{M}\p{N}\x{200C}\x{200D}+#.-]*[\p{L}\p{M}\p{N}+#])?$`)

// NormalTag returns the normal form of a tag: lower case, NFC, without spaces around it. It may still break a rule.
func NormalTag(name string) string {
	return norm.NFC.String(strings.ToLower(norm.NFC.String(CleanLine(name))))
}

// ValidTag reports whether a tag in normal form follows the rules: 1 to MaxTag letters and digits of any script, and
// "+", "#", "." and "-" among them.
func ValidTag(name string) bool {
	return utf8.RuneCountInString(name) <= MaxTag && tagPattern.MatchString(name) &&
		!strings.ContainsFunc(name, isUnseen)
}

// prefixPattern matches the beginnings of the tags that tagPattern matches.
var prefixPattern = regexp.MustCompile(`^\.?([\p{L}\p{N}][\p{L}\p{M}\p{N}\x{200C}\x{200D}+#.-]*)?$`)

// ValidTagPrefix reports whether a valid tag can begin with prefix, which is in normal form.
func ValidTagPrefix(prefix string) bool {
	return prefix != "" && utf8.RuneCountInString(prefix) <= MaxTag && prefixPattern.MatchString(prefix)
}

// NormalTags returns the normal form of each tag, each once.
func NormalTags(names []string) Tags {
	var tags Tags
	for _, name := range names {
		if name = NormalTag(name); !slices.Contains(tags, name) {
			tags = append(tags, name)
		}
	}
	return tags
}

// Scan reads names separated by spaces. NULL means no tags.
func (t *Tags) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t = nil
	case []byte:
		*t = strings.Fields(string(v))
	case string:
		*t = strings.Fields(v)
	default:
		return fmt.Errorf("scan tags: %T is not text", value)
	}
	return nil
}

// GormDataType makes GORM read the list as a column, not as an association.
func (Tags) GormDataType() string { return "text" }

// MarshalJSON writes an array, also without tags.
func (t Tags) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(t))
}

// TagSort is the order of a list of tags.
type TagSort string

// The orders.
const (
	TagsPopular TagSort = "popular" // most posts first, then the latest tag
	TagsName    TagSort = "name"    // by code points
)

// Tag is a tag and the number of its posts that are not deleted.
type Tag struct {
	ID         int64
	Name       string
	PostsCount int64
}

// Key returns the place of the tag in a list sorted by sort.
func (t *Tag) Key(sort TagSort) ListKey {
	if sort == TagsName {
		return ListKey{ID: t.ID}
	}
	return ListKey{Value: t.PostsCount, ID: t.ID}
}

// TagQuery selects the tags of a list.
type TagQuery struct {
	Sort   TagSort
	Prefix string // of the names, in normal form and valid; "" for all
	After  *ListKey
	Limit  int
}
