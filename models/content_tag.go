package models

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"gorm.io/gorm"
)

// Limits on tags. The length is counted in characters.
const (
	MaxTags = 5 // of a post
	MaxTag  = 30
)

// Tags are the names of a post's tags, in the author's order.
type Tags []string

// tagPattern lets a tag begin and end with something to read: "node.js", ".net", "c++" and "c#", but not "-" or "a.".
var tagPattern = regexp.MustCompile(`^\.?[\p{L}\p{N}]([\p{L}\p{M}\p{N}+#.-]*[\p{L}\p{M}\p{N}+#])?$`)

// NormalTag gives the one spelling of a tag: lower case, NFC, no spaces around it. It may still break a rule.
func NormalTag(name string) string {
	return norm.NFC.String(strings.ToLower(norm.NFC.String(strings.TrimSpace(name))))
}

// ValidTag reports whether a tag that was made normal follows the rules: 1 to MaxTag letters and digits of any script,
// and "+", "#", "." and "-" among them.
func ValidTag(name string) bool {
	return utf8.RuneCountInString(name) <= MaxTag && tagPattern.MatchString(name) && !strings.ContainsFunc(name, isUnseen)
}

// prefixPattern is what tagPattern lets a tag begin with.
var prefixPattern = regexp.MustCompile(`^\.?([\p{L}\p{N}][\p{L}\p{M}\p{N}+#.-]*)?$`)

// ValidTagPrefix reports whether a tag may begin with this, which was made normal.
func ValidTagPrefix(prefix string) bool {
	return prefix != "" && utf8.RuneCountInString(prefix) <= MaxTag && prefixPattern.MatchString(prefix)
}

// NormalTags gives the one spelling of each tag, and each once.
func NormalTags(names []string) Tags {
	var tags Tags
	for _, name := range names {
		if name = NormalTag(name); !slices.Contains(tags, name) {
			tags = append(tags, name)
		}
	}
	return tags
}

func checkTags(f *fieldErrors, tags Tags) {
	f.check(len(tags) <= MaxTags, "tags", fmt.Sprintf("must be at most %d", MaxTags))
	f.check(!slices.ContainsFunc(tags, func(name string) bool { return !ValidTag(name) }), "tags",
		fmt.Sprintf(`must each have 1 to %d letters or digits, and among them "+", "#", "." or "-"`, MaxTag))
}

// tagNames is the tags of the post p as Tags scans them.
const tagNames = "(SELECT GROUP_CONCAT(t.name ORDER BY g.position SEPARATOR ' ') FROM post_tags g JOIN tags t ON t.id=g.tag_id WHERE g.post_id=p.id)"

// Scan reads names with spaces between them; NULL is none.
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

// GormDataType keeps GORM from taking the list for an association.
func (Tags) GormDataType() string { return "text" }

// MarshalJSON writes an array, also when there is none.
func (t Tags) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(t))
}

// tagIDs gives the ids of tags and creates those that are new. It runs before the transaction that uses the ids, each
// statement by itself, so that nobody waits for a post to be written because it uses the same new tag. What is left over
// when that transaction fails is a tag without posts, which no list shows.
func (s *Store) tagIDs(ctx context.Context, names Tags) (map[string]int64, error) {
	ids := make(map[string]int64, len(names))
	if len(names) == 0 {
		return ids, nil
	}
	read := func() error {
		var rows []struct {
			ID   int64
			Name string
		}
		err := s.db.WithContext(ctx).Raw("SELECT id, name FROM tags WHERE name IN ?", []string(names)).Scan(&rows).Error
		if err != nil {
			return fmt.Errorf("read tags: %w", err)
		}
		for _, r := range rows {
			ids[r.Name] = r.ID
		}
		return nil
	}
	if err := read(); err != nil || len(ids) == len(names) {
		return ids, err
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, there := ids[name]; there {
			continue
		}
		_, err := s.write(Aside(ctx), "INSERT INTO tags (name, created_at) VALUES (?,?) ON DUPLICATE KEY UPDATE id=id", name, second(s.now()))
		if err != nil {
			return nil, fmt.Errorf("create tag: %w", err)
		}
	}
	if err := read(); err != nil {
		return nil, err
	}
	if len(ids) != len(names) {
		return nil, fmt.Errorf("%d of %d tags are not there although they were created", len(names)-len(ids), len(names))
	}
	return ids, nil
}

// insertTags writes the tags of a post that has none, without counting them. The post is written already.
func insertTags(tx *gorm.DB, postID int64, createdAt time.Time, tags Tags, ids map[string]int64) error {
	if len(tags) == 0 {
		return nil
	}
	var values []string
	var args []any
	for i, name := range tags {
		values = append(values, fmt.Sprintf("(%d,%d,%d,?)", postID, ids[name], i))
		args = append(args, createdAt)
	}
	if err := tx.Exec("INSERT INTO post_tags (post_id, tag_id, position, created_at) VALUES "+strings.Join(values, ","), args...).Error; err != nil {
		return fmt.Errorf("tag post %d: %w", postID, err)
	}
	return syncTags(tx, postID)
}

// syncTags copies what lists of a tag are ordered and filtered by from posts to their rows of post_tags. Whoever changes
// one of these columns of a post calls it in the same transaction. The rows of the posts are locked.
func syncTags(tx *gorm.DB, posts ...int64) error {
	if len(posts) == 0 {
		return nil
	}
	err := tx.Exec(`
UPDATE post_tags g
JOIN posts p ON p.id=g.post_id
SET g.status=p.status, g.user_id=p.user_id, g.created_at=p.created_at,
    g.likes_count=p.likes_count, g.hot_score=p.hot_score, g.active_at=p.active_at
WHERE g.post_id IN (` + joinIDs(posts) + `)`).Error
	if err != nil {
		return fmt.Errorf("update tags of posts: %w", err)
	}
	return nil
}

// tagsStale counts the rows of post_tags that differ from their post t.
const tagsStale = `(SELECT COUNT(*) FROM post_tags g WHERE g.post_id=t.id AND
 (g.status<>t.status OR g.user_id<>t.user_id OR g.created_at<>t.created_at
  OR g.likes_count<>t.likes_count OR g.hot_score<>t.hot_score OR g.active_at<>t.active_at))`

// eachOnce counts each of the tags once, by id.
func eachOnce(tags Tags, ids map[string]int64) map[int64]int {
	delta := make(map[int64]int, len(tags))
	for _, name := range tags {
		delta[ids[name]]++
	}
	return delta
}

// countTags adds to the counts of tags. It is the last statement of every transaction that needs it, since everybody who
// uses a popular tag waits for its row; and it locks the rows in the order of their ids.
func countTags(tx *gorm.DB, delta map[int64]int) error {
	maps.DeleteFunc(delta, func(_ int64, d int) bool { return d == 0 })
	if len(delta) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(delta))
	by := ""
	for _, id := range ids {
		by += " WHEN " + strconv.FormatInt(id, 10) + " THEN " + strconv.Itoa(delta[id])
	}
	if err := tx.Exec("UPDATE tags SET posts_count=posts_count+CASE id" + by + " END WHERE id IN (" + joinIDs(ids) + ")").Error; err != nil {
		return fmt.Errorf("count tags: %w", err)
	}
	return nil
}

// moveTags makes the tags of posts hidden or shown as the posts are, and returns what countTags has to add.
func moveTags(tx *gorm.DB, posts ...int64) (delta map[int64]int, err error) {
	var changes []struct {
		TagID int64
		Shown bool
	}
	err = tx.Raw(`
SELECT g.tag_id, p.status=? AS shown
FROM post_tags g
JOIN posts p ON p.id=g.post_id
WHERE g.post_id IN (`+joinIDs(posts)+`) AND g.status<>p.status`, StatusNormal).Scan(&changes).Error
	if err != nil {
		return nil, fmt.Errorf("read tags of posts: %w", err)
	}
	delta = map[int64]int{}
	for _, c := range changes {
		if c.Shown {
			delta[c.TagID]++
		} else {
			delta[c.TagID]--
		}
	}
	return delta, syncTags(tx, posts...)
}

// TagSort is the order of a list of tags.
type TagSort string

// The orders.
const (
	TagsPopular TagSort = "popular" // most posts first; of as many, the latest tag
	TagsName    TagSort = "name"    // by code points
)

// Tag is a tag and how many posts have it that are not deleted.
type Tag struct {
	ID         int64
	Name       string
	PostsCount int64
}

// Key gives the place of the tag in a list sorted by sort.
func (t *Tag) Key(sort TagSort) ListKey {
	if sort == TagsName {
		return ListKey{ID: t.ID}
	}
	return ListKey{Value: t.PostsCount, ID: t.ID}
}

// TagQuery says which tags to list.
type TagQuery struct {
	Sort   TagSort
	Prefix string // of the names, normal and valid; "" for all
	After  *ListKey
	Limit  int
}

// ListTags lists tags that some post has. Tags by name that no post has, and tags by popularity with another prefix, are
// passed over. If that makes the page short, rest is where the list continues; nil for its end.
//
// Popular tags with a prefix are those of all names with it, sorted, if these are few. Otherwise they are looked for along
// the index of all tags by popularity.
func (s *Store) ListTags(ctx context.Context, q TagQuery) (tags []Tag, rest *ListKey, err error) {
	read := s.popularTags
	if q.Sort == TagsName {
		read = func(ctx context.Context, after *ListKey, limit int) ([]Tag, error) {
			return s.tagsByName(ctx, q.Prefix, after, limit)
		}
	} else if q.Prefix != "" {
		few, err := s.fewTags(ctx, q.Prefix)
		if err != nil {
			return nil, nil, err
		}
		if few {
			tags, err := s.tagsOf(ctx, q)
			return tags, nil, err
		}
	}
	for entries, budget := q.Limit, maxPassed; budget > 0; entries *= 4 {
		entries = min(entries, budget)
		budget -= entries
		segment, err := read(ctx, q.After, entries)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range segment {
			if t.PostsCount > 0 && strings.HasPrefix(t.Name, q.Prefix) {
				if tags = append(tags, t); len(tags) == q.Limit {
					return tags, nil, nil
				}
			}
		}
		if len(segment) < entries {
			return tags, nil, nil
		}
		key := segment[len(segment)-1].Key(q.Sort)
		q.After = &key
	}
	return tags, q.After, nil
}

// tagsByName reads tags in the order of their names, those that no post has included.
func (s *Store) tagsByName(ctx context.Context, prefix string, after *ListKey, limit int) ([]Tag, error) {
	where, args := "t.name LIKE ?", []any{prefix + "%"} // a valid tag has no wildcard in it
	if after != nil {
		where, args = where+" AND t.name>(SELECT a.name FROM tags a WHERE a.id=?)", append(args, after.ID)
	}
	return s.readTags(ctx, `
SELECT t.id, t.name, t.posts_count
FROM tags t FORCE INDEX (idx_name)
WHERE `+where+`
ORDER BY t.name
LIMIT ?`, append(args, limit)...)
}

// popularTags reads tags that some post has, most posts first.
func (s *Store) popularTags(ctx context.Context, after *ListKey, limit int) ([]Tag, error) {
	where, args := "t.posts_count>0", []any{}
	if key, keys := keyRange("t.posts_count", "?", "t.id", after, nil); key != "" {
		where, args = where+" AND "+key, append(args, keys...)
	}
	return s.readTags(ctx, `
SELECT t.id, t.name, t.posts_count
FROM tags t FORCE INDEX (idx_posts_count)
WHERE `+where+`
ORDER BY t.posts_count DESC, t.id DESC
LIMIT ?`, append(args, limit)...)
}

// fewTags reports whether so few names have a prefix that all of them can be sorted for a page.
func (s *Store) fewTags(ctx context.Context, prefix string) (bool, error) {
	const query = `
SELECT COUNT(*)
FROM (SELECT 1 FROM tags FORCE INDEX (idx_name) WHERE name LIKE ? LIMIT ?) n`
	var n int
	if err := s.db.WithContext(ctx).Raw(query, prefix+"%", maxPassed+1).Scan(&n).Error; err != nil {
		return false, fmt.Errorf("count tags: %w", err)
	}
	return n <= maxPassed, nil
}

// tagsOf sorts all tags with a prefix, most posts first.
func (s *Store) tagsOf(ctx context.Context, q TagQuery) ([]Tag, error) {
	where, args := "t.name LIKE ? AND t.posts_count>0", []any{q.Prefix + "%"}
	if key, keys := keyRange("t.posts_count", "?", "t.id", q.After, nil); key != "" {
		where, args = where+" AND "+key, append(args, keys...)
	}
	return s.readTags(ctx, `
SELECT t.id, t.name, t.posts_count
FROM tags t FORCE INDEX (idx_name)
WHERE `+where+`
ORDER BY t.posts_count DESC, t.id DESC
LIMIT ?`, append(args, q.Limit)...)
}

func (s *Store) readTags(ctx context.Context, query string, args ...any) (tags []Tag, err error) {
	if err := s.db.WithContext(ctx).Raw(query, args...).Scan(&tags).Error; err != nil {
		return nil, fmt.Errorf("list tags: %w", err)
	}
	return tags, nil
}
