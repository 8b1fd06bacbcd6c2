package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/maypok86/otter/v2"

	"likewise/handlers/live"
	"likewise/models"
)

// kindNotifications is the kind of a user, by id, as a target of streams: the unread notifications.
const kindNotifications models.TargetKind = "notifications"

// unreadEventJSON is the event that streams send about the viewer's notifications.
type unreadEventJSON struct {
	Type        models.TargetKind  `json:"type"`
	ID          int64              `json:"id"` // of the viewer
	UnreadCount int64              `json:"unread_count"`
	Items       []notificationJSON `json:"items"` // the latest unread ones, latest first
}

// unreadItems is how many notifications an event holds. Every stream of a user keeps one event in memory.
const unreadItems = 5

// knownUnread is an event, and the version at which it was made.
type knownUnread struct {
	version models.UnreadVersion
	event   *live.Counts
}

// unreadLife is how long an event is used while its version stays: changes of a block or of the content that a
// notification is about do not change it.
const unreadLife = time.Minute

// newUnreadCache returns the cache of the events that streams have. Losing an entry costs two queries.
func newUnreadCache() (*otter.Cache[int64, knownUnread], error) {
	return otter.New(&otter.Options[int64, knownUnread]{
		ExpiryCalculator: otter.ExpiryWriting[int64, knownUnread](unreadLife),
		MaximumSize:      live.MaxWatched,
	})
}

// readUnread adds the events of those targets that are users. It reads the notifications of a user again if the version
// has changed.
func (s *Server) readUnread(ctx context.Context, targets []models.Target, all map[models.Target]*live.Counts) error {
	var ids []int64
	for _, t := range targets {
		if t.Kind == kindNotifications {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	settled := s.now().Unix() - 1 // another notification may be read within the second of the version
	versions, err := s.people.UnreadVersions(ctx, ids)
	if err != nil {
		return err
	}
	for id, version := range versions {
		known, ok := s.unread.GetIfPresent(id)
		if !ok || known.version != version || version.ReadAt >= settled {
			if known.event, err = s.unreadOf(ctx, id); err != nil {
				return err
			}
			s.unread.Set(id, knownUnread{version, known.event})
		}
		all[models.Target{Kind: kindNotifications, ID: id}] = known.event
	}
	return nil
}

func (s *Server) unreadOf(ctx context.Context, userID int64) (*live.Counts, error) {
	unread, err := s.people.UnreadCount(ctx, userID)
	if err != nil {
		return nil, err
	}
	list, _, err := s.people.Notifications(ctx, userID, true, 0, unreadItems)
	if err != nil {
		return nil, err
	}
	event := unreadEventJSON{kindNotifications, userID, unread, make([]notificationJSON, len(list))}
	for i := range list {
		event.Items[i] = s.newNotificationJSON(&list[i])
	}
	return live.NewCounts("notifications", event)
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
