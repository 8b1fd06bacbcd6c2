package stackexchange

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Reason is why rows or votes of a dump were skipped.
type Reason string

// The reasons. They are printed after "skipped".
const (
	TagWiki     Reason = "tag wikis"
	OtherPost   Reason = "posts that are neither question nor answer"
	NoPost      Reason = "their post is not in the dump"
	LeftOut     Reason = "their post or comment was skipped"
	BrokenRule  Reason = "their text breaks a rule of this forum"
	DeletedHere Reason = "their post or comment was deleted here"
	TooFewUsers Reason = "more likes than there are users"
)

// Tally counts the results for one kind of row. Read is the sum of Created, Present and all in Skipped.
type Tally struct {
	Read    int64
	Created int64
	Present int64 // created by an earlier run
	Skipped map[Reason]int64
}

func (t *Tally) skip(why Reason, n int64) {
	if n == 0 {
		return
	}
	if t.Skipped == nil {
		t.Skipped = map[Reason]int64{}
	}
	t.Skipped[why] += n
}

// Summary holds the results of a run.
type Summary struct {
	Source string // in the imports table

	Users        Tally
	Posts        Tally
	Comments     Tally // answers, and comments on questions and answers
	PostLikes    Tally // includes the up-votes whose post is not in the dump, because its type is unknown
	CommentLikes Tally // up-votes of answers, and the scores of comments

	Placeholders int64 // 1 if this run created the placeholder account, which Users does not count
	NoAuthor     int64 // posts and comments of the placeholder account
	Cut          int64 // texts that were too long
	Blank        int64 // blank texts, which became "(no text)"
	OtherVotes   int64 // rows of Votes.xml that are not up-votes
	CutBios      int64 // bios that were too long
	Profiles     int64 // bios and pictures that break a rule of this forum
	BadTags      int64 // tags that break a rule of this forum

	Illegal  int64            // characters that XML does not allow, left out; bytes that are not UTF-8, replaced
	Unread   int64            // rows with unreadable values, which no Tally counts
	Examples []string         // what is wrong with the first of them
	NoPlace  map[string]int64 // values that this forum has no place for, by what they are
}

// count sets the numbers that are known before the first row is written.
func (s *Summary) count(d *dump) {
	s.Users.Read = int64(len(d.users.rows))
	s.Posts.Read = int64(len(d.questions.rows) + d.tagWikis + d.otherPosts)
	s.Posts.skip(TagWiki, int64(d.tagWikis))
	s.Posts.skip(OtherPost, int64(d.otherPosts))
	s.Comments.Read = int64(len(d.answers.rows) + len(d.comments.rows))
	s.OtherVotes = int64(d.otherVotes)
	s.Illegal, s.Unread, s.Examples, s.NoPlace = int64(d.illegal), int64(d.unread), d.examples, d.noPlace
}

// Print writes the summary as a table, followed by the reasons for skipped rows.
func (s Summary) Print(w io.Writer) error {
	tallies := []struct {
		name string
		Tally
	}{
		{"users", s.Users},
		{"posts", s.Posts},
		{"comments", s.Comments},
		{"post likes", s.PostLikes},
		{"comment likes", s.CommentLikes},
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tread\tcreated\talready present\tskipped\t")
	var notes []string
	for _, t := range tallies {
		var skipped int64
		for _, why := range slices.Sorted(maps.Keys(t.Skipped)) {
			skipped += t.Skipped[why]
			notes = append(notes, fmt.Sprintf("%s skipped, %s: %s", t.name, why, thousands(t.Skipped[why])))
		}
		fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%s\t%s\t\n",
			t.name,
			thousands(t.Read),
			thousands(t.Created),
			thousands(t.Present),
			thousands(skipped),
		)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print summary: %w", err)
	}
	for _, note := range []struct {
		what string
		n    int64
	}{
		{"votes skipped because they are not up-votes", s.OtherVotes},
		{"posts and comments without an author, assigned to a placeholder account", s.NoAuthor},
		{"placeholder accounts created, in addition to the users above", s.Placeholders},
		{"texts cut because they were too long", s.Cut},
		{"empty texts that became \"" + noText + "\"", s.Blank},
		{"bios cut because they were too long", s.CutBios},
		{"bios and pictures left out because they break a rule of this forum", s.Profiles},
		{"tags left out because they break a rule of this forum", s.BadTags},
		{"characters left out or replaced because no text can contain them", s.Illegal},
		{"rows left out because of their values", s.Unread},
	} {
		if note.n > 0 {
			notes = append(notes, note.what+": "+thousands(note.n))
		}
	}
	for _, example := range s.Examples {
		notes = append(notes, "  "+example)
	}
	for _, what := range slices.Sorted(maps.Keys(s.NoPlace)) {
		notes = append(notes, what+" not imported, because this forum does not store them: "+thousands(s.NoPlace[what]))
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return fmt.Errorf("print summary: %w", err)
		}
	}
	return nil
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
