package handlers

import (
	"context"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"likewise/handlers/live"
	"likewise/models"
)

// The kinds of targets whose streams have news.
const (
	kindThread models.TargetKind = "thread" // a post, by id: its latest comments, and its drops
	kindPosts  models.TargetKind = "posts"  // a tag, by id, or the site, with the id 0: the latest posts
)

func hasNews(t models.Target) bool { return t.Kind == kindThread || t.Kind == kindPosts }

// threadNewsJSON is the event about the comments on a post.
type threadNewsJSON struct {
	Type       models.TargetKind `json:"type"`
	ID         int64             `json:"id"`          // of the post
	CommentIDs []int64           `json:"comment_ids"` // of the latest ones, latest first
	DropIDs    []int64           `json:"drop_ids"`    // of all drops of the post
}

// postNewsJSON is the event about new posts.
type postNewsJSON struct {
	Type    models.TargetKind `json:"type"`
	Tag     *string           `json:"tag"`      // null: of the site
	PostIDs []int64           `json:"post_ids"` // of the latest ones, latest first
}

// knownNews is an event, and the version at which it was made.
type knownNews struct {
	version models.NewsVersion
	event   *live.Counts
}

// newsLife is how long an event is used while its version stays, which it does if a comment is deleted and another one
// is restored.
const newsLife = time.Minute

// newNewsCache returns the cache of the events that streams have. Losing an entry costs two queries.
func newNewsCache() (*otter.Cache[models.Target, knownNews], error) {
	return otter.New(&otter.Options[models.Target, knownNews]{
		ExpiryCalculator: otter.ExpiryWriting[models.Target, knownNews](newsLife),
		MaximumSize:      live.MaxWatched,
	})
}

// tagTargets returns the targets of those tags that exist, in the order of their ids.
func (s *Server) tagTargets(ctx context.Context, names []string, limit int) ([]models.Target, error) {
	tags := models.NormalTags(names)
	switch {
	case len(tags) == 0:
		return nil, nil
	case len(tags) > limit:
		return nil, models.Invalid("tags", models.WrongCount(len(tags), 0, limit).
			Saying("must name at most %d posts, comments, drops, threads and tags in all", live.MaxTargets))
	case slices.ContainsFunc(tags, func(name string) bool { return !models.ValidTag(name) }):
		return nil, models.Invalid("tags", models.BadFormat(models.FormatTag, "must be names of tags"))
	}
	ids, err := s.content.TagIDs(ctx, tags)
	if err != nil {
		return nil, err
	}
	targets := make([]models.Target, len(ids))
	for i, id := range ids {
		targets[i] = models.Target{Kind: kindPosts, ID: id}
	}
	return targets, nil
}

// readNews adds the events of those targets that have news. It reads the news of a target again if its version has
// changed.
func (s *Server) readNews(ctx context.Context, targets []models.Target, all map[models.Target]*live.Counts) error {
	var threads, tags []int64
	for _, t := range targets {
		switch {
		case t.Kind == kindThread:
			threads = append(threads, t.ID)
		case t.Kind == kindPosts && t.ID != 0:
			tags = append(tags, t.ID)
		case t.Kind == kindPosts:
			posts, err := s.content.PostNews(ctx)
			if err == nil {
				all[t], err = newPostNews(nil, posts)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := s.readThreadNews(ctx, threads, all); err != nil {
		return err
	}
	return s.readTagNews(ctx, tags, all)
}

// readThreadNews is readNews of posts, by their ids.
func (s *Server) readThreadNews(ctx context.Context, ids []int64, all map[models.Target]*live.Counts) error {
	if len(ids) == 0 {
		return nil
	}
	versions, err := s.content.ThreadVersions(ctx, ids)
	if err != nil {
		return err
	}
	changed := s.changedNews(kindThread, versions, all)
	comments, err := s.content.CommentNews(ctx, changed)
	if err != nil {
		return err
	}
	drops, err := s.content.DropsByPost(ctx, changed)
	if err != nil {
		return err
	}
	for _, id := range changed {
		event, err := live.NewNews("thread", comments[id], func(ids []int64) any {
			return threadNewsJSON{kindThread, id, ids, append([]int64{}, drops[id]...)}
		})
		if err != nil {
			return err
		}
		s.keepNews(models.Target{Kind: kindThread, ID: id}, versions[id], event, all)
	}
	return nil
}

// readTagNews is readNews of tags, by their ids.
func (s *Server) readTagNews(ctx context.Context, ids []int64, all map[models.Target]*live.Counts) error {
	if len(ids) == 0 {
		return nil
	}
	versions, err := s.content.TagVersions(ctx, ids)
	if err != nil {
		return err
	}
	changed := s.changedNews(kindPosts, versions, all)
	posts, err := s.content.TagNews(ctx, changed)
	if err != nil {
		return err
	}
	for _, id := range changed {
		name := versions[id].Name
		event, err := newPostNews(&name, posts[id])
		if err != nil {
			return err
		}
		s.keepNews(models.Target{Kind: kindPosts, ID: id}, versions[id], event, all)
	}
	return nil
}

// changedNews adds the known events to all, and returns the ids of the others, whose versions have changed.
func (s *Server) changedNews(
	kind models.TargetKind, versions map[int64]models.NewsVersion, all map[models.Target]*live.Counts,
) (changed []int64) {
	for id, version := range versions {
		t := models.Target{Kind: kind, ID: id}
		if known, ok := s.news.GetIfPresent(t); ok && known.version == version {
			all[t] = known.event
		} else {
			changed = append(changed, id)
		}
	}
	return changed
}

func (s *Server) keepNews(
	t models.Target, version models.NewsVersion, event *live.Counts, all map[models.Target]*live.Counts,
) {
	s.news.Set(t, knownNews{version, event})
	all[t] = event
}

func newPostNews(tag *string, posts []models.NewsItem) (*live.Counts, error) {
	return live.NewNews("posts", posts, func(ids []int64) any { return postNewsJSON{kindPosts, tag, ids} })
}
