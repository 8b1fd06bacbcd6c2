package models

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"gorm.io/gorm"
)

// termsVersion is the version of the rules in this file that make terms and weights of a text. Posts whose terms are
// of an earlier one are indexed again by IndexPosts: raise it with every change of the rules.
const termsVersion = 1

const (
	maxTerm      = 32     // characters of a term, as wide as its column; longer words are cut
	maxPostTerms = 10_000 // distinct terms of one post that are kept
	// MaxSearchTerms is how many terms of a search count; what comes after them is not looked for.
	MaxSearchTerms = 10
	// MaxSearch is the length of a search in characters.
	MaxSearch = 200
)

// termsOf calls term with each term of the text, in its order; a term comes as often as it stands there.
//
// A word is a run of letters, marks and digits. It is compared without regard to case, width and other forms of
// compatibility (NFKC), or to the accents of Latin, Greek and Cyrillic, and by its English stem: "Qubits" is "qubit".
// Scripts that put no spaces between words, and Korean, whose words grow particles, give each character and each pair
// of neighbours: so "量子计算" is found by "量子", "子计", "计算", by each of its characters, and by nothing else.
func termsOf(text string, term func(string)) {
	folded := cases.Fold().String(norm.NFKD.String(text))
	bare := strings.Map(func(r rune) rune {
		if r >= 0x300 && r <= 0x36f { // accents; other scripts' marks are letters in all but name
			return -1
		}
		return r
	}, folded)
	for word := range strings.FieldsFuncSeq(norm.NFC.String(bare), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
	}) {
		for word != "" {
			var run string
			if run, word = cutRun(word); unspaced(firstRune(run)) {
				pairs(run, term)
			} else {
				term(stem(run))
			}
		}
	}
}

// cutRun cuts off the beginning of a word that is all of unspaced scripts, or all of others. Marks go with either.
func cutRun(word string) (run, rest string) {
	first := unspaced(firstRune(word))
	for i, r := range word {
		if unspaced(r) != first && !unicode.IsMark(r) {
			return word[:i], word[i:]
		}
	}
	return word, ""
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

func unspaced(r rune) bool {
	return r >= 0xe00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func pairs(run string, term func(string)) {
	before := ""
	for _, r := range run {
		one := string(r)
		term(one)
		if before != "" {
			term(before + one)
		}
		before = one
	}
}

func stem(word string) string {
	if len(word) <= maxTerm && strings.IndexFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }) < 0 {
		return english.Stem(word, false)
	}
	n := 0
	for i := range word {
		if n++; n > maxTerm {
			return word[:i]
		}
	}
	return word
}

// What makes up a weight. Nothing in it depends on other posts, so a post's relevance to a search changes with its text
// alone: that is what keeps the pages of a search from shifting.
const (
	titleWeight   = 400  // for standing in the title
	contentWeight = 300  // approached by a term that comes ever more often
	usualLength   = 200  // terms of a content that is neither short nor long
	saturation    = 1.2  // how slowly contentWeight is approached, as k1 in BM25
	lengthShare   = 0.75 // of the saturation that goes by the length, as b in BM25
)

// termWeights gives what each term of a text counts for, from 1 to titleWeight+contentWeight.
func termWeights(text PostText) map[string]int {
	counts := map[string]int{}
	length := 0
	count := func(term string) {
		if _, known := counts[term]; known || len(counts) < maxPostTerms {
			counts[term]++
		}
		length++
	}
	inTitle := map[string]bool{}
	termsOf(text.Title, func(term string) { inTitle[term] = true })
	termsOf(text.Content, count)
	slow := saturation * (1 - lengthShare + lengthShare*float64(length)/usualLength)
	weights := make(map[string]int, len(counts)+len(inTitle))
	for term, n := range counts {
		weights[term] = max(1, int(contentWeight*float64(n)/(float64(n)+slow)))
	}
	for term := range inTitle {
		weights[term] += titleWeight
	}
	return weights
}

// SearchTerms gives the terms that a post must have, all of them, to be found by q: at most MaxSearchTerms, each once.
// None means that there is nothing to look for in q. Words that nearly every English text has are left out as long as
// others remain.
func SearchTerms(q string) []string {
	var terms, common []string
	single := map[string]bool{} // characters that stand in a pair, too
	termsOf(q, func(term string) {
		if first, size := utf8.DecodeRuneInString(term); unspaced(first) && len(term) > size {
			_, last := utf8.DecodeLastRuneInString(term)
			single[string(first)], single[term[len(term)-last:]] = true, true
		}
		switch {
		case slices.Contains(terms, term) || slices.Contains(common, term):
		case english.IsStopWord(term):
			common = append(common, term)
		default:
			terms = append(terms, term)
		}
	})
	// A pair stands for its two characters.
	terms = slices.DeleteFunc(terms, func(term string) bool { return single[term] })
	if len(terms) == 0 {
		terms = common
	}
	return terms[:min(len(terms), MaxSearchTerms)]
}

// writeTerms puts a new post, or one whose terms were deleted, into the search index. The caller sets terms_version.
func writeTerms(tx *gorm.DB, postID int64, weights map[string]int) error {
	const chunk = 1000
	values, args := make([]string, 0, chunk), make([]any, 0, chunk)
	flush := func() error {
		if len(values) == 0 {
			return nil
		}
		err := tx.Exec("INSERT INTO post_terms (post_id, term, weight) VALUES "+strings.Join(values, ","), args...).Error
		values, args = values[:0], args[:0]
		return err
	}
	terms := make([]string, 0, len(weights))
	for term := range weights {
		terms = append(terms, term)
	}
	slices.Sort(terms) // as the primary key has them
	id := strconv.FormatInt(postID, 10)
	for _, term := range terms {
		values = append(values, "("+id+",?,"+strconv.Itoa(weights[term])+")")
		args = append(args, term)
		if len(values) == chunk {
			if err := flush(); err != nil {
				return fmt.Errorf("index post %d: %w", postID, err)
			}
		}
	}
	if err := flush(); err != nil {
		return fmt.Errorf("index post %d: %w", postID, err)
	}
	return nil
}

// deleteTerms takes a post out of the search index.
func deleteTerms(tx *gorm.DB, postID int64) error {
	if err := tx.Exec("DELETE t FROM post_terms t FORCE INDEX (idx_post_id) WHERE t.post_id=?", postID).Error; err != nil {
		return fmt.Errorf("take post %d out of the index: %w", postID, err)
	}
	return nil
}

// IndexPosts puts at most limit posts into the search index that are not in it, or by earlier rules, each in a
// transaction of its own, and gives their number: fewer than limit means that none is left. These are the posts of
// before there was an index; all others are indexed by whoever writes them. Any number of callers may do it at once.
func (s *Store) IndexPosts(ctx context.Context, limit int) (int, error) {
	var ids []int64
	err := s.db.WithContext(ctx).Raw("SELECT id FROM posts FORCE INDEX (idx_status_terms) WHERE status=1 AND terms_version<?"+
		" ORDER BY status, terms_version, id LIMIT ?", termsVersion, limit).Scan(&ids).Error
	if err != nil {
		return 0, fmt.Errorf("find posts to index: %w", err)
	}
	for _, id := range ids {
		if err := s.indexPost(ctx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func (s *Store) indexPost(ctx context.Context, id int64) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		var text struct{ Title, Content string }
		read := tx.Raw("SELECT title, content FROM posts FORCE INDEX (PRIMARY) WHERE id=? AND status=1 AND terms_version<? FOR UPDATE", id, termsVersion).Scan(&text)
		if read.Error != nil || read.RowsAffected == 0 {
			return read.Error // none: somebody else was faster
		}
		if err := deleteTerms(tx, id); err != nil {
			return err
		}
		if err := writeTerms(tx, id, termWeights(PostText{Title: text.Title, Content: text.Content})); err != nil {
			return err
		}
		return tx.Exec("UPDATE posts SET terms_version=?, updated_at=updated_at WHERE id=?", termsVersion, id).Error
	})
}

// postFacts is what the choice of a plan goes by. Posts are counted up to a bound.
type postFacts struct {
	Posts       int64 // about how many there are
	Blocks      bool  // the viewer blocks somebody: the author, if posts of one author are asked for
	TagID       int64 // 0: no post ever had the tag
	TagPosts    int64 // that have the tag, all of them
	AuthorPosts int64
	WindowPosts int64   // of the window, among those of the source that is walked
	terms       []int64 // that have each of the terms
}

// postFacts reads, in one query, what is known of the conditions of q. For each of them it counts up to one post more than
// most.
func (s *Store) postFacts(ctx context.Context, q PostQuery, most int) (postFacts, error) {
	count := func(from string) string {
		return "(SELECT COUNT(*) FROM (SELECT 1 FROM " + from + " LIMIT " + strconv.Itoa(most+1) + ") n)"
	}
	query := "SELECT COALESCE((SELECT MAX(id) FROM posts),0) AS posts, EXISTS (SELECT 1 FROM blocks WHERE user_id=? AND ? IN (0, blocked_id)) AS blocks"
	args := []any{q.ViewerID, q.AuthorID}
	if q.Tag != "" {
		query += ", COALESCE((SELECT id FROM tags WHERE name=?),0) AS tag_id, COALESCE((SELECT posts_count FROM tags WHERE name=?),0) AS tag_posts"
		args = append(args, q.Tag, q.Tag)
	}
	if q.countsAuthor() {
		query += ", " + count("posts FORCE INDEX (idx_user_status_created) WHERE user_id=? AND status=1") + " AS author_posts"
		args = append(args, q.AuthorID)
	}
	if !q.Since.IsZero() && q.Sort != PostsNew {
		src := q.source(&postFacts{})
		if src.alias == "g" {
			src.where, src.args = "g.tag_id=(SELECT id FROM tags WHERE name=?) AND g.status=1", []any{q.Tag}
		}
		query += ", " + count(src.table+" "+src.alias+" FORCE INDEX ("+src.indexOf(PostsNew)+") WHERE "+src.where+" AND "+src.alias+".created_at>=?") + " AS window_posts"
		args = append(append(args, src.args...), second(q.Since))
	}
	if len(q.Terms) > 0 {
		query += ", CONCAT_WS(' '"
		for _, term := range q.Terms {
			query += ", " + count("post_terms WHERE term=?")
			args = append(args, term)
		}
		query += ") AS term_posts"
	}
	var row struct {
		PostFacts postFacts `gorm:"embedded"`
		TermPosts string
	}
	if err := s.db.WithContext(ctx).Raw(query, args...).Scan(&row).Error; err != nil {
		return postFacts{}, fmt.Errorf("count posts: %w", err)
	}
	f := row.PostFacts
	for n := range strings.FieldsSeq(row.TermPosts) {
		count, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return postFacts{}, fmt.Errorf("count posts: %w", err)
		}
		f.terms = append(f.terms, count)
	}
	return f, nil
}

// Window is how far back a list of posts goes.
type Window string

// The windows.
const (
	WindowAll   Window = "all"
	WindowDay   Window = "day"   // 24 hours
	WindowWeek  Window = "week"  // 7 days
	WindowMonth Window = "month" // 30 days
	WindowYear  Window = "year"  // 365 days
)

// Since gives when the window that ends at now begins, in whole seconds; the zero time for WindowAll.
func (w Window) Since(now time.Time) time.Time {
	days := map[Window]int{WindowDay: 1, WindowWeek: 7, WindowMonth: 30, WindowYear: 365}[w]
	if days == 0 {
		return time.Time{}
	}
	return second(now).AddDate(0, 0, -days)
}
