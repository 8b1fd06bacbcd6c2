package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"

	"likewise/handlers/live"
	"likewise/models"
)

// kindNews is the kind of a user, by id, as a target of streams: the unread notifications.
const kindNews models.TargetKind = "notifications"

// newsJSON is the event that streams send about the viewer's notifications.
type newsJSON struct {
	Type        models.TargetKind  `json:"type"`
	ID          int64              `json:"id"` // of the viewer
	UnreadCount int64              `json:"unread_count"`
	Items       []notificationJSON `json:"items"` // the latest unread ones, latest first
}

// newsItems is how many notifications an event holds. Every stream of a user keeps one event in memory.
const newsItems = 5

// knownNews is an event, and the mark at which it was made.
type knownNews struct {
	mark  models.NewsMark
	event *live.Counts
}

// newsLife is how long an event is used while its mark stays: changes of a block or of the content that a notification
// is about do not move the mark.
const newsLife = time.Minute

// newNews returns the cache of the events that streams have. Losing an entry costs two queries.
func newNews() (*otter.Cache[int64, knownNews], error) {
	return otter.New(&otter.Options[int64, knownNews]{
		ExpiryCalculator: otter.ExpiryWriting[int64, knownNews](newsLife),
		MaximumSize:      live.MaxWatched,
	})
}

// readNews adds the events of those targets that are users. It reads the notifications of a user again if the mark has
// changed.
func (s *Server) readNews(ctx context.Context, targets []models.Target, all map[models.Target]*live.Counts) error {
	var ids []int64
	for _, t := range targets {
		if t.Kind == kindNews {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	settled := s.now().Unix() - 1 // another notification may be read within the second of the mark
	marks, err := s.people.NewsMarks(ctx, ids)
	if err != nil {
		return err
	}
	for id, mark := range marks {
		known, ok := s.news.GetIfPresent(id)
		if !ok || known.mark != mark || mark.ReadAt >= settled {
			if known.event, err = s.newsOf(ctx, id); err != nil {
				return err
			}
			s.news.Set(id, knownNews{mark, known.event})
		}
		all[models.Target{Kind: kindNews, ID: id}] = known.event
	}
	return nil
}

func (s *Server) newsOf(ctx context.Context, userID int64) (*live.Counts, error) {
	unread, err := s.people.UnreadCount(ctx, userID)
	if err != nil {
		return nil, err
	}
	list, _, err := s.people.Notifications(ctx, userID, true, 0, newsItems)
	if err != nil {
		return nil, err
	}
	news := newsJSON{kindNews, userID, unread, make([]notificationJSON, len(list))}
	for i := range list {
		news.Items[i] = s.newNotificationJSON(&list[i])
	}
	return live.NewCounts("notifications", news)
}

// streamNews reads ?notifications= of a stream. It returns CodeUnauthorized or CodeForbidden unless the viewer may list
// notifications.
func streamNews(c *fiber.Ctx) (wanted bool, err error) {
	value, err := oneOf(c, "notifications", "false", "true")
	if err != nil || value == "false" {
		return false, err
	}
	rule, _ := models.PermNotificationList.Rule()
	return true, rule.Admit(viewer(c))
}

// sessionCheck returns a function that reports whether the session of the request is still valid. While that cannot be
// found out, it is taken for valid: then no notifications can be read either.
func (s *Server) sessionCheck(c *fiber.Ctx) func() bool {
	hash := sessionHash(c)
	return func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		_, err := s.sessions.Lookup(ctx, hash)
		return models.ErrorCode(err) != models.CodeUnauthorized
	}
}
