// Package sample is a small forum, so that a new installation for development has something to show. Its people are
// made up.
//
// Accounts, posts and most comments are written as an import writes them, with times before the present. Everything
// else passes the functions that the API calls, so likes and claims go through the gate.
package sample

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"likewise/counters"
	"likewise/handlers/markdown"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/moderation"
	"likewise/models/people"
	"likewise/models/stock"
)

//go:embed sample.yaml
var text []byte

// Forum is where the sample is written.
type Forum struct {
	Store  *db.DB
	Likes  *counters.Likes
	Claims *counters.Claims
	IDs    *counters.IDs
	// PasswordHash is that of the password of all accounts of the sample.
	PasswordHash string
	Now          time.Time
}

// forum is what sample.yaml holds.
type forum struct {
	Users   []user
	Posts   []post
	Follows map[string][]string // followed users by user
}

type user struct {
	Name, Display, Bio string
	Role               string // "" for user
}

type post struct {
	By       string
	Age      time.Duration
	Title    string
	Tags     []string
	Text     string
	Likes    int
	Pinned   bool
	Drop     *drop
	Comments []*comment
}

type drop struct {
	Title   string
	Stock   int64
	Claimed []string // by whom
}

type comment struct {
	By     string
	After  time.Duration // after the post or the parent
	Now    bool          // written last, as a request would, so that it notifies
	Text   string
	Likes  int
	Report *report

	Comments []*comment

	external int64 // its number in the sample
	post     int64
	parent   int64 // 0 at the top level
	created  time.Time
}

type report struct {
	By, Reason, Detail string
}

// Kinds in the imports table, and the source.
const (
	source      = "sample"
	kindState   = "state"
	kindUser    = "user"
	kindPost    = "post"
	kindComment = "comment"
	kindNotice  = "notice" // a comment that notifies
)

const (
	begun int64 = 1
	done  int64 = 2
)

// Begin records that the sample is wanted, so that a start that is stopped continues it at the next.
func Begin(ctx context.Context, store *db.DB) error {
	return content.New(store).RecordImported(ctx, source, kindState, begun, 0)
}

// Wanted reports whether Begin was called, and Create has not succeeded since.
func Wanted(ctx context.Context, store *db.DB) (bool, error) {
	states, err := content.New(store).Imported(ctx, source, kindState)
	_, is := states[begun]
	_, was := states[done]
	return is && !was, err
}

// Names returns the usernames of the sample.
func Names() ([]string, error) {
	c, err := parse()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range c.Users {
		names = append(names, u.Name)
	}
	return names, nil
}

func parse() (*forum, error) {
	var c forum
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&c); err != nil {
		return nil, fmt.Errorf("read sample: %w", err)
	}
	return &c, nil
}

// writer writes the sample.
type writer struct {
	Forum
	*forum
	users    map[string]models.Author
	posts    map[int64]int64 // ids here, by numbers in the sample
	comments map[int64]int64
	all      []*comment // parents before their replies
}

// Create writes the sample. If it was stopped, calling it again writes the rest, and no part of it twice.
func Create(ctx context.Context, f Forum) error {
	c, err := parse()
	if err != nil {
		return err
	}
	w := &writer{Forum: f, forum: c, users: map[string]models.Author{}}
	w.number()
	for _, step := range []func(context.Context) error{
		w.createUsers, w.createPosts, w.createComments, w.moderate, w.follow, w.like, w.sell, w.notify, w.report,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("write sample: %w", err)
		}
	}
	return content.New(f.Store).RecordImported(ctx, source, kindState, done, 0)
}

// number numbers the comments, and finds the times at which they were written.
func (w *writer) number() {
	var add func(list []*comment, post, parent int64, at time.Time)
	add = func(list []*comment, post, parent int64, at time.Time) {
		for _, c := range list {
			w.all = append(w.all, c)
			c.external, c.post, c.parent = int64(len(w.all)), post, parent
			c.created = at.Add(c.After)
			add(c.Comments, post, c.external, c.created)
		}
	}
	for i := range w.Posts {
		add(w.Posts[i].Comments, int64(i+1), 0, w.Now.Add(-w.Posts[i].Age))
	}
}

// rest imports those of n items that were not imported, and returns the ids of all by their numbers, from 1.
func rest[T any](ctx context.Context, w *writer, kind string, items map[int64]T,
	write func(ctx context.Context, source, kind string, list []T) ([]int64, error),
) (map[int64]int64, error) {
	ids, err := content.New(w.Store).Imported(ctx, source, kind)
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for n := range items {
		if _, there := ids[n]; !there {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	var list []T
	for _, n := range numbers {
		list = append(list, items[n])
	}
	written, err := write(ctx, source, kind, list)
	if err != nil {
		return nil, err
	}
	for i, id := range written {
		ids[numbers[i]] = id
	}
	return ids, nil
}

// membership is how long the people of the sample have had their accounts.
const membership = 60 * 24 * time.Hour

func (w *writer) createUsers(ctx context.Context) error {
	items := map[int64]models.ImportedUser{}
	for i, u := range w.Users {
		items[int64(i+1)] = models.ImportedUser{
			ExternalID: int64(i + 1), Usernames: []string{u.Name}, Email: u.Name + "@sample" + models.NoEmailDomain,
			CreatedAt: w.Now.Add(-membership - time.Duration(i)*time.Hour),
		}
	}
	ids, err := rest(ctx, w, kindUser, items, content.New(w.Store).ImportUsers)
	if err != nil {
		return err
	}
	for i, u := range w.Users {
		id := ids[int64(i+1)]
		w.users[u.Name] = models.Author{ID: id, Username: u.Name}
		_, err := accounts.New(w.Store).ChangePassword(ctx, id, "", w.PasswordHash, [32]byte{})
		if err != nil && models.ErrorCode(err) != models.CodeForbidden { // it has a password
			return err
		}
		profile := models.Profile{DisplayName: u.Display, Bio: u.Bio}
		if err := profile.Validate(); err != nil {
			return fmt.Errorf("profile of %s: %w", u.Name, err)
		}
		if err := people.New(w.Store).UpdateProfile(ctx, id, profile); err != nil {
			return err
		}
		if u.Role == "" {
			continue
		}
		role, err := models.ParseRole(u.Role)
		if err != nil {
			return err
		}
		if err := accounts.New(w.Store).SetRole(ctx, id, role); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) createPosts(ctx context.Context) (err error) {
	items := map[int64]models.ImportedPost{}
	for i, p := range w.Posts {
		title, body := p.Title, strings.TrimSpace(p.Text)
		textOf := models.PostText{Title: title, Content: body, Tags: p.Tags}
		if err := textOf.Validate(); err != nil {
			return fmt.Errorf("post %q: %w", title, err)
		}
		at := w.Now.Add(-p.Age)
		items[int64(i+1)] = models.ImportedPost{
			ExternalID: int64(i + 1), AuthorID: w.users[p.By].ID, Text: textOf, CreatedAt: at, UpdatedAt: at,
		}
	}
	w.posts, err = rest(ctx, w, kindPost, items, content.New(w.Store).ImportPosts)
	return err
}

// createComments imports one level after the other: a reply names the id of its parent.
func (w *writer) createComments(ctx context.Context) error {
	w.comments = map[int64]int64{0: 0}
	for {
		items := map[int64]models.ImportedComment{}
		for _, c := range w.all {
			_, there := w.comments[c.external]
			parent, parentThere := w.comments[c.parent]
			if c.Now || there || !parentThere {
				continue
			}
			items[c.external] = models.ImportedComment{
				ExternalID: c.external, PostID: w.posts[c.post], ParentID: parent, AuthorID: w.users[c.By].ID,
				Text:      models.CommentText{Content: strings.TrimSpace(c.Text)},
				CreatedAt: c.created, UpdatedAt: c.created,
			}
		}
		if len(items) == 0 {
			return nil
		}
		ids, err := rest(ctx, w, kindComment, items, content.New(w.Store).ImportComments)
		if err != nil {
			return err
		}
		for n := range items {
			w.comments[n] = ids[n]
		}
	}
}

func (w *writer) moderate(ctx context.Context) error {
	var moderator int64
	for _, u := range w.Users {
		if u.Role != "" {
			moderator = w.users[u.Name].ID
		}
	}
	for i, p := range w.Posts {
		if p.Pinned {
			id := w.posts[int64(i+1)]
			err := moderation.New(w.Store).SetPostFlag(ctx, moderator, id, models.PostPinned, true, "A place to begin.")
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) follow(ctx context.Context) error {
	for name, followed := range w.Follows {
		for _, other := range followed {
			if _, err := people.New(w.Store).Follow(ctx, w.users[name].ID, w.users[other].ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// atOnce is how many targets are liked at the same time.
const atOnce = 8

// like lets users like each post and comment. The others like an author's content in turn, so that no two of them like
// much of it together and look like a ring.
func (w *writer) like(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	turn := map[string]int{} // by author
	likes := func(target models.Target, by string, n int) {
		others := slices.DeleteFunc(slices.Clone(w.Users), func(u user) bool { return u.Name == by })
		first := turn[by]
		turn[by] += n
		group.Go(func() error {
			for i := range min(n, len(others)) {
				liker := w.users[others[(first+i)%len(others)].Name]
				if _, err := w.Likes.SetLike(ctx, target, liker.ID, true); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i, p := range w.Posts {
		likes(models.Target{Kind: models.KindPost, ID: w.posts[int64(i+1)]}, p.By, p.Likes)
	}
	for _, c := range w.all {
		if !c.Now {
			likes(models.Target{Kind: models.KindComment, ID: w.comments[c.external]}, c.By, c.Likes)
		}
	}
	return group.Wait()
}

// sell creates the drops, and claims of them.
func (w *writer) sell(ctx context.Context) error {
	for i, p := range w.Posts {
		if p.Drop == nil {
			continue
		}
		post := w.posts[int64(i+1)]
		drops, err := stock.New(w.Store).DropsOfPost(ctx, post, 0, 1)
		if err != nil {
			return err
		}
		if len(drops) == 0 {
			d, err := stock.New(w.Store).CreateDrop(ctx, w.users[p.By].ID, post, models.DropSettings{
				Title: p.Drop.Title, Stock: p.Drop.Stock,
			})
			if err != nil {
				return err
			}
			drops = []models.Drop{*d}
		}
		shards := w.Store.Shards()
		target := models.Target{Kind: models.KindDrop, ID: drops[0].ID}
		for _, name := range p.Drop.Claimed {
			id, err := w.IDs.Next(ctx, target.Shard(shards), shards)
			if err != nil {
				return err
			}
			if _, err := w.Claims.Claim(ctx, target.ID, w.users[name].ID, int64(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// notify writes the latest comments. Each is marked first: if the process ends between the two, one is missing.
func (w *writer) notify(ctx context.Context) error {
	marked, err := content.New(w.Store).Imported(ctx, source, kindNotice)
	if err != nil {
		return err
	}
	parser := markdown.NewParser()
	for _, c := range w.all {
		if _, there := marked[c.external]; !c.Now || there {
			continue
		}
		if err := content.New(w.Store).RecordImported(ctx, source, kindNotice, c.external, 0); err != nil {
			return err
		}
		var parent *int64
		if id := w.comments[c.parent]; id != 0 {
			parent = &id
		}
		in := models.CommentText{Content: strings.TrimSpace(c.Text), Mentions: parser.Mentions(c.Text)}
		if _, err := content.New(w.Store).CreateComment(ctx, w.users[c.By], w.posts[c.post], parent, in); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) report(ctx context.Context) error {
	for _, c := range w.all {
		if c.Report == nil {
			continue
		}
		_, err := moderation.New(w.Store).ReportContent(ctx, w.users[c.Report.By].ID, models.NewReport{
			Target: models.Target{Kind: models.KindComment, ID: w.comments[c.external]},
			Reason: c.Report.Reason, Detail: c.Report.Detail,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
