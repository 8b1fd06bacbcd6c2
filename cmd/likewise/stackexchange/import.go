// Package stackexchange loads a dump of a Stack Exchange site, in the public format of one <row/> per record, into the
// forum.
//
// Users become accounts without a password, which nobody can log in to. A name that no username can hold, such as one
// in another script, is the display name; descriptions become bios. Questions become posts with at most five tags, and
// their HTML becomes Markdown. Answers and comments on questions become comments. Comments on answers become replies.
// Content without an author belongs to a placeholder account.
//
// Every up-vote, and every point of a comment's score, becomes a like. A dump does not name the voters, so the import
// chooses them, and every run chooses the same. Tag wikis, other votes, and rows whose post is missing are skipped and
// counted.
//
// All files are read before the first row is written, so that an incomplete dump is refused. What no text can contain,
// such as a control character, is left out and counted, and so is a row with unreadable values. Each row is recorded as
// imported in the transaction that writes it. So an import that was stopped continues where it ended, and repeating a
// complete import changes nothing. Likes pass the same gate as the likes of users. The likes of a target are recorded
// when the last was accepted.
//
// Rows stay in their files. The import holds 100 to 200 bytes of memory for each row.
package stackexchange

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// Likes accepts likes. It is the gate, or the store in direct mode.
type Likes interface {
	SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error)
}

// Options configure an import.
type Options struct {
	Dir   string // the folder with Users.xml, Posts.xml, Comments.xml and Votes.xml
	Site  string // the name under which the import is recorded; "" means the name of Dir
	Store *db.DB
	Likes Likes

	// Progress, if set, is called often with the progress of a stage, in order, and by one goroutine at a time.
	// StageRead counts bytes. The other stages count rows or likes.
	Progress func(stage Stage, done, total int64)

	batch int // rows written in one transaction; 0 means defaultBatch
}

// Stage is a part of an import.
type Stage string

// The stages, in their order.
const (
	StageRead         Stage = "reading the dump"
	StageUsers        Stage = "users"
	StagePosts        Stage = "posts"
	StageAnswers      Stage = "answers"
	StageComments     Stage = "comments"
	StagePostLikes    Stage = "post likes"
	StageCommentLikes Stage = "comment likes"
)

// Kinds in the imports table. In a dump, answers and comments are numbered separately, and so are their likes.
const (
	kindUser         = "user"
	kindPost         = "post"
	kindAnswer       = "answer"
	kindComment      = "comment"
	kindPostLikes    = "post_likes"
	kindAnswerLikes  = "answer_likes"
	kindCommentLikes = "comment_likes"
)

// sourcePrefix begins the names of imports in the imports table.
const sourcePrefix = "stackexchange:"

// All dumps share one placeholder account, which has a source of its own.
const (
	placeholderSource = "stackexchange"
	kindPlaceholder   = "placeholder"
)

// defaultBatch keeps transactions, and so the waits for their locks, short.
const defaultBatch = 200

// importer is one run.
type importer struct {
	Options
	source  string
	dump    *dump
	html    *htmlConverter
	summary *Summary

	users     map[int64]int64 // ids here, by ids in the dump
	questions map[int64]int64
	answers   map[int64]int64
	comments  map[int64]int64
	question  map[int64]int64 // ids of questions by ids of their answers, both in the dump
	deleted   int64           // the placeholder account; 0 until it is needed
}

// Import loads a dump and returns a summary, even with an error. After an error, the same call continues where this one
// ended. If the dump is not well-formed, Import writes nothing and returns an error that names the file and the row. A
// like that is refused with CodeUnavailable is retried for a minute.
func Import(ctx context.Context, o Options) (Summary, error) {
	if o.Progress == nil {
		o.Progress = func(Stage, int64, int64) {}
	}
	if o.batch == 0 {
		o.batch = defaultBatch
	}
	im := &importer{Options: o, summary: &Summary{}}
	err := im.run(ctx)
	return *im.summary, err
}

func (im *importer) run(ctx context.Context) (err error) {
	site, err := siteName(im.Site, im.Dir)
	if err != nil {
		return err
	}
	im.Site, im.source, im.html = site, sourcePrefix+site, newHTMLConverter(site)
	im.summary.Source = im.source
	im.dump, err = openDump(ctx, im.Dir, func(done, total int64) { im.Progress(StageRead, done, total) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, im.dump.Close()) }()
	if err := im.checkName(ctx); err != nil {
		return err
	}
	im.summary.count(im.dump)

	im.users, err = load(ctx, im, StageUsers, kindUser, im.dump.users, &im.summary.Users, im.user,
		content.New(im.Store).ImportUsers)
	if err != nil {
		return err
	}
	im.questions, err = load(
		ctx,
		im,
		StagePosts,
		kindPost,
		im.dump.questions,
		&im.summary.Posts,
		im.post,
		content.New(im.Store).ImportPosts,
	)
	if err != nil {
		return err
	}
	im.question = make(map[int64]int64, len(im.dump.answers.rows))
	for _, e := range im.dump.answers.rows {
		im.question[e.id] = e.parent
	}
	im.answers, err = load(
		ctx,
		im,
		StageAnswers,
		kindAnswer,
		im.dump.answers,
		&im.summary.Comments,
		im.answer,
		content.New(im.Store).ImportComments,
	)
	if err != nil {
		return err
	}
	im.comments, err = load(
		ctx,
		im,
		StageComments,
		kindComment,
		im.dump.comments,
		&im.summary.Comments,
		im.comment,
		content.New(im.Store).ImportComments,
	)
	if err != nil {
		return err
	}
	return im.likes(ctx)
}

// compared is how many of the oldest accounts identify a dump.
const compared = 50

// checkName returns an error if the dump was imported under another name, or if another dump was imported under this
// one. The ids of different sites are alike, but their accounts were not created at the same times.
func (im *importer) checkName(ctx context.Context) error {
	accounts := map[int64]time.Time{}
	for _, e := range im.dump.users.rows[:min(compared, len(im.dump.users.rows))] {
		accounts[e.id] = time.UnixMilli(e.created)
	}
	sources, err := content.New(im.Store).ImportSources(ctx, sourcePrefix, kindUser, accounts)
	if err != nil {
		return err
	}
	isSame := func(s models.ImportSource) bool { return 2*s.Same > s.Known }
	if i := slices.IndexFunc(sources, func(s models.ImportSource) bool { return s.Name == im.source }); i >= 0 {
		if isSame(sources[i]) {
			return nil
		}
		return fmt.Errorf("another dump was imported under the name %q: choose a name for this one with --site NAME",
			im.Site)
	}
	if i := slices.IndexFunc(sources, isSame); i >= 0 {
		name := strings.TrimPrefix(sources[i].Name, sourcePrefix)
		return fmt.Errorf("this dump was imported under the name %q: add --site %s to continue that import",
			name, name)
	}
	return nil
}

var notInSite = regexp.MustCompile(`[^a-z0-9.-]+`)

// siteName returns the name under which an import is recorded. The name is part of a host name in the accounts'
// addresses, so it has only characters of host names.
func siteName(name, dir string) (string, error) {
	if name == "" {
		path, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("find dump: %w", err)
		}
		name = filepath.Base(path)
	}
	site := strings.Trim(truncate(notInSite.ReplaceAllString(strings.ToLower(name), "-"), 60), ".-")
	if site == "" {
		return "", fmt.Errorf("%q cannot be used as the name of a site: it needs letters or digits", name)
	}
	return site, nil
}

// load writes the rows of t that are not written yet, in batches, oldest first. It returns the local ids of all rows.
// decode converts a row for write, or returns the reason to skip it.
func load[T any](ctx context.Context, im *importer, stage Stage, kind string, t table, tally *Tally,
	decode func(context.Context, *row) (T, Reason, error),
	write func(context.Context, string, string, []T) ([]int64, error),
) (map[int64]int64, error) {
	ids, err := content.New(im.Store).Imported(ctx, im.source, kind)
	if err != nil {
		return nil, err
	}
	var items []T
	var externals []int64
	flush := func(done int) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		written, err := write(ctx, im.source, kind, items)
		if err != nil {
			return err
		}
		for i, id := range written {
			if id == 0 {
				tally.skip(DeletedHere, 1)
				continue
			}
			ids[externals[i]] = id
			tally.Created++
		}
		items, externals = items[:0], externals[:0]
		im.Progress(stage, int64(done), int64(len(t.rows)))
		return nil
	}
	for i, e := range t.rows {
		if _, there := ids[e.id]; there {
			tally.Present++
			continue
		}
		r, err := t.read(e)
		if err != nil {
			return nil, err
		}
		item, why, err := decode(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("%s: row with Id %d: %w", t.name, e.id, err)
		}
		if why != "" {
			tally.skip(why, 1)
			continue
		}
		items, externals = append(items, item), append(externals, e.id)
		if len(items) == im.batch {
			if err := flush(i + 1); err != nil {
				return nil, err
			}
		}
	}
	return ids, flush(len(t.rows))
}

func (im *importer) user(_ context.Context, r *row) (models.ImportedUser, Reason, error) {
	u, err := decodeUser(r)
	return models.ImportedUser{
		ExternalID: u.id,
		Usernames:  usernames(u.displayName, u.id),
		Email:      fmt.Sprintf("user-%d@%s%s", u.id, im.Site, models.NoEmailDomain),
		Profile:    im.profile(u),
		CreatedAt:  u.created,
	}, "", err
}

// profile returns the profile of a user. What breaks a rule of profiles is left out and counted.
func (im *importer) profile(u userRow) models.Profile {
	bio, tooLong := plainText(u.about, addressOf(im.Site), models.MaxBio)
	if tooLong {
		im.summary.CutBios++
	}
	p := models.Profile{DisplayName: displayName(u.displayName)}
	for _, more := range []struct {
		field *string
		value string
	}{{&p.Bio, bio}, {&p.AvatarURL, u.picture}} {
		if *more.field = more.value; p.Validate() != nil {
			*more.field = ""
			im.summary.Profiles++
		}
	}
	return p
}

func (im *importer) post(ctx context.Context, r *row) (post models.ImportedPost, _ Reason, err error) {
	p, err := decodePost(r)
	if err != nil {
		return post, "", err
	}
	markdown, err := im.html.markdown(p.body)
	if err != nil {
		return post, "", err
	}
	post = models.ImportedPost{ExternalID: p.id, CreatedAt: p.created, UpdatedAt: p.edited}
	post.Text = models.PostText{Title: title(p.title), Content: im.content(markdown), Tags: im.tags(p.tags)}
	if !allowed(post.Text) {
		return post, BrokenRule, nil
	}
	post.AuthorID, err = im.author(ctx, p.owner)
	return post, "", err
}

func (im *importer) answer(ctx context.Context, r *row) (c models.ImportedComment, _ Reason, err error) {
	p, err := decodePost(r)
	if err != nil {
		return c, "", err
	}
	c = models.ImportedComment{
		ExternalID: p.id,
		PostID:     im.questions[p.parent],
		CreatedAt:  p.created,
		UpdatedAt:  p.edited,
	}
	if c.PostID == 0 {
		return c, NoPost, nil
	}
	markdown, err := im.html.markdown(p.body)
	if err != nil {
		return c, "", err
	}
	why, err := im.fill(ctx, &c, markdown, p.owner)
	return c, why, err
}

func (im *importer) comment(ctx context.Context, r *row) (c models.ImportedComment, _ Reason, err error) {
	row, err := decodeComment(r)
	if err != nil {
		return c, "", err
	}
	c = models.ImportedComment{
		ExternalID: row.id,
		PostID:     im.questions[row.post],
		CreatedAt:  row.created,
		UpdatedAt:  row.created,
	}
	if c.PostID == 0 {
		c.ParentID, c.PostID = im.answers[row.post], im.questions[im.question[row.post]]
		if c.ParentID == 0 || c.PostID == 0 {
			return c, NoPost, nil
		}
	}
	why, err := im.fill(ctx, &c, row.text, row.owner)
	return c, why, err
}

// allowed reports whether the forum accepts a text.
func allowed(text interface{ Validate() error }) bool { return text.Validate() == nil }

func (im *importer) fill(
	ctx context.Context, c *models.ImportedComment, markdown string, owner int64,
) (why Reason, err error) {
	c.Text = models.CommentText{Content: im.content(markdown)}
	if !allowed(c.Text) {
		return BrokenRule, nil
	}
	c.AuthorID, err = im.author(ctx, owner)
	return "", err
}

func (im *importer) tags(s string) models.Tags {
	names, left := tags(s)
	im.summary.BadTags += int64(left)
	return names
}

func (im *importer) content(markdown string) string {
	text, tooLong := shortened(markdown)
	if tooLong {
		im.summary.Cut++
	}
	if text == noText {
		im.summary.Blank++
	}
	return text
}

// author returns the account of a user of the dump, or else the placeholder account.
func (im *importer) author(ctx context.Context, owner int64) (int64, error) {
	if id := im.users[owner]; id != 0 {
		return id, nil
	}
	im.summary.NoAuthor++
	if im.deleted != 0 {
		return im.deleted, nil
	}
	there, err := content.New(im.Store).Imported(ctx, placeholderSource, kindPlaceholder)
	if err != nil {
		return 0, err
	}
	if im.deleted = there[0]; im.deleted != 0 {
		return im.deleted, nil
	}
	ids, err := content.New(im.Store).ImportUsers(ctx, placeholderSource, kindPlaceholder, []models.ImportedUser{{
		Usernames: []string{"deleted", "deleted-user", "deleted-user-2", "deleted-user-3"},
		Email:     "deleted@stackexchange" + models.NoEmailDomain,
		CreatedAt: im.Store.Now(),
	}})
	if err != nil {
		return 0, err
	}
	im.deleted, im.summary.Placeholders = ids[0], 1
	return im.deleted, nil
}
