package handlers

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"likewise/counters"
	"likewise/handlers/admission"
	"likewise/handlers/live"
	"likewise/models"
)

const mimeEventStream = "text/event-stream"

type postCountsJSON struct {
	Type          models.TargetKind `json:"type"`
	ID            int64             `json:"id"`
	LikesCount    int64             `json:"likes_count"`
	CommentsCount int64             `json:"comments_count"`
}

type commentCountsJSON struct {
	Type         models.TargetKind `json:"type"`
	ID           int64             `json:"id"`
	LikesCount   int64             `json:"likes_count"`
	RepliesCount int64             `json:"replies_count"`
}

type dropCountsJSON struct {
	Type      models.TargetKind `json:"type"`
	ID        int64             `json:"id"`
	Stock     int64             `json:"stock"`
	Claimed   int64             `json:"claimed"`
	Remaining int64             `json:"remaining"`
	State     models.DropState  `json:"state"`
}

type goneJSON struct {
	Type models.TargetKind `json:"type"`
	ID   int64             `json:"id"`
}

// readCounts is the live.Reader of the API.
func (s *Server) readCounts(ctx context.Context, targets []models.Target) (map[models.Target]*live.Counts, error) {
	found, err := s.content.LiveCounts(ctx, targets)
	if err != nil {
		return nil, err
	}
	rows := make([]models.TargetCount, len(found))
	for i, a := range found {
		rows[i] = models.TargetCount{Target: a.Target, Count: a.Likes}
	}
	likes, err := s.gate.LikeStates(ctx, 0, rows)
	if err != nil {
		return nil, err
	}
	all := make(map[models.Target]*live.Counts, len(targets))
	for i, a := range found {
		var data any = postCountsJSON{a.Kind, a.ID, likes[i].Count, a.Replies}
		if a.Kind == models.KindComment {
			data = commentCountsJSON{a.Kind, a.ID, likes[i].Count, a.Replies}
		}
		if all[a.Target], err = live.NewCounts("counts", data); err != nil {
			return nil, err
		}
	}
	if err := s.readDropCounts(ctx, targets, all); err != nil {
		return nil, err
	}
	if err := s.readUnread(ctx, targets, all); err != nil {
		return nil, err
	}
	if err := s.readNews(ctx, targets, all); err != nil {
		return nil, err
	}
	for _, t := range targets {
		if all[t] == nil {
			if all[t], err = live.NewGone("gone", goneJSON{t.Kind, t.ID}); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// readDropCounts adds the counts of those targets that are drops.
func (s *Server) readDropCounts(
	ctx context.Context, targets []models.Target, all map[models.Target]*live.Counts,
) error {
	var ids []int64
	for _, t := range targets {
		if t.Kind == models.KindDrop {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	drops, err := s.stock.Drops(ctx, ids)
	if err != nil {
		return err
	}
	states, err := s.claimGate.States(ctx, 0, drops)
	if err != nil {
		return err
	}
	now := s.now()
	for i := range drops {
		d, remaining := &drops[i], max(0, drops[i].Stock-states[i].Claimed)
		all[d.Target()], err = live.NewCounts("counts", dropCountsJSON{
			models.KindDrop, d.ID, d.Stock, states[i].Claimed, remaining, d.StateAt(now, remaining),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// openStream sends counts as they change, as server-sent events. It hijacks the connection: the server writes an answer
// within one deadline, and a stream needs one for each write.
func (s *Server) openStream(c *fiber.Ctx) error {
	wanted, err := queriedTargets(c)
	if err != nil {
		return err
	}
	targets, err := s.targets(c, wanted)
	if err != nil {
		return err
	}
	client := live.Client{From: s.clientKey(c), Viewer: viewerID(c)}
	if viewer(c) != nil {
		client.Owner, client.Valid = sessionHash(c), s.sessionCheck(c)
	}
	if err := s.hub.Admit(client.From, nil, nil); err != nil {
		return s.refusedStream(c, err)
	}
	following, err := s.following(c.UserContext(), client.Viewer, targets)
	if err != nil {
		return err
	}
	if err := s.hub.Admit(client.From, targets, following.Known); err != nil {
		return s.refusedStream(c, err)
	}
	c.Set(fiber.HeaderContentType, mimeEventStream)
	c.Set(fiber.HeaderCacheControl, "no-store, no-transform") // a proxy that compresses would hold events back
	c.Set("X-Accel-Buffering", "no")                          // so would nginx
	if c.Method() == fiber.MethodHead {
		return nil
	}
	c.Context().SetConnectionClose()
	resume, request := strings.Clone(c.Get("Last-Event-ID")), strings.Clone(requestID(c))
	// The stream writes the header once it is admitted. The answer must not have a length.
	c.Response().Header.SetContentLength(-2)
	head := c.Response().Header.AppendBytes(nil)
	var refused fasthttp.ResponseHeader
	c.Response().Header.CopyTo(&refused)
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		if wrapped, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
			conn = wrapped.UnsafeConn() // without the bytes that the server has read ahead
		}
		if err := s.hub.Serve(conn, s.newStreamID(), client, following, head, resume); err != nil {
			s.refuseStream(conn, &refused, request, err)
		}
	})
	return nil
}

// following reads the counts of those targets that no stream of this process follows. It returns CodeNotFound if all
// targets are gone.
func (s *Server) following(ctx context.Context, viewer int64, targets []models.Target) (live.Following, error) {
	known := s.hub.Latest(targets)
	unknown := slices.DeleteFunc(slices.Clone(targets), func(t models.Target) bool { return known[t] != nil })
	if len(unknown) > 0 {
		read, err := s.readCounts(ctx, unknown)
		if err != nil {
			return live.Following{}, err
		}
		maps.Copy(known, read)
	}
	if !slices.ContainsFunc(targets, func(t models.Target) bool { return !known[t].Gone() }) {
		return live.Following{}, models.Errorf(models.CodeNotFound,
			"None of these posts, comments, drops and tags exist.")
	}
	f := live.Following{
		Targets: targets, Known: known,
		Private: targets[len(targets)-1].Kind == kindNotifications, // the rest is public
		News:    slices.ContainsFunc(targets, hasNews),
	}
	if f.News && viewer != 0 {
		blocked, err := s.people.BlockedBy(ctx, []int64{viewer})
		if err != nil {
			return f, err
		}
		f.Blocked = blocked[viewer]
	}
	return f, nil
}

// refusedStream counts a stream that was refused because of the client's address, and sets the headers of the limit.
func (s *Server) refusedStream(c *fiber.Ctx, err error) error {
	if models.ErrorCode(err) == models.CodeRateLimited {
		s.metrics.limited.WithLabelValues("streams-by-address").Inc()
		streams := max(1, s.hub.Limits.OfOne()) // 0 if only the process that holds the stream has the limit
		rate := counters.Rate{Burst: streams, Every: live.RetryAfter / time.Duration(streams)}
		admission.SetLimit(&c.Response().Header, "streams-by-address", rate,
			counters.Taken{ResetAfter: live.RetryAfter})
	}
	return err
}

// refuseStream answers with an error on a hijacked connection, and closes it.
func (s *Server) refuseStream(conn net.Conn, header *fasthttp.ResponseHeader, request string, err error) {
	defer conn.Close()
	text := newProblem(err, request)
	body, err := json.Marshal(text)
	if err != nil {
		return
	}
	header.SetStatusCode(text.Status)
	header.SetContentType(mimeProblem)
	header.SetContentLength(len(body))
	header.Set(fiber.HeaderRetryAfter, strconv.FormatInt(admission.Seconds(live.RetryAfter), 10))
	if conn.SetWriteDeadline(time.Now().Add(s.hub.Pace.Write)) == nil {
		_, _ = conn.Write(header.AppendBytes(nil)) // the connection is closed anyway
		_, _ = conn.Write(body)
	}
}

// streamWants is what a client wants to follow.
type streamWants struct {
	posts, comments, drops, threads []int64
	tags                            []string // in normal form
	newPosts, notifications         bool
}

// lists returns the lists of ids, by the name of the field and the kind of its targets.
func (w *streamWants) lists() []streamList {
	return []streamList{
		{"posts", models.KindPost, &w.posts},
		{"comments", models.KindComment, &w.comments},
		{"drops", models.KindDrop, &w.drops},
		{"threads", kindThread, &w.threads},
	}
}

type streamList struct {
	name string
	kind models.TargetKind
	ids  *[]int64
}

// queriedTargets reads ?posts=, ?comments=, ?drops= and ?threads=, each a comma-separated list of ids, ?tags=, a list
// of names, ?new_posts= and ?notifications=.
func queriedTargets(c *fiber.Ctx) (*streamWants, error) {
	var wants streamWants
	for _, list := range wants.lists() {
		if !c.Context().QueryArgs().Has(list.name) {
			continue
		}
		for text := range strings.SplitSeq(c.Query(list.name), ",") {
			id, ok := parseID(text)
			if !ok {
				return nil, models.Invalid(list.name,
					models.BadFormat(models.FormatIDs, "must be a comma-separated list of ids"))
			}
			*list.ids = append(*list.ids, id)
		}
	}
	if c.Context().QueryArgs().Has("tags") {
		wants.tags = strings.Split(strings.Clone(c.Query("tags")), ",")
	}
	newPosts, err := oneOf(c, "new_posts", "false", "true")
	if err != nil {
		return nil, err
	}
	notifications, err := oneOf(c, "notifications", "false", "true")
	wants.newPosts, wants.notifications = newPosts == "true", notifications == "true"
	return &wants, err
}

// targets returns every target once, in an order that depends on the targets alone: ids of events rely on it. The
// viewer's notifications come last.
func (s *Server) targets(c *fiber.Ctx, w *streamWants) ([]models.Target, error) {
	var targets []models.Target
	for _, list := range w.lists() {
		ids := slices.Clone(*list.ids)
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if id < 1 {
				return nil, models.Invalid(list.name, models.BadFormat(models.FormatIDs, "must be a list of ids"))
			}
			targets = append(targets, models.Target{Kind: list.kind, ID: id})
		}
		if len(targets) > live.MaxTargets {
			return nil, models.Invalid(list.name, models.WrongCount(len(targets), 1, live.MaxTargets).
				Saying("must name at most %d posts, comments, drops, threads and tags in all", live.MaxTargets))
		}
	}
	tagged, err := s.tagTargets(c.UserContext(), w.tags, live.MaxTargets-len(targets))
	if err != nil {
		return nil, err
	}
	targets = append(targets, tagged...)
	if w.newPosts {
		targets = append(targets, models.Target{Kind: kindPosts})
	}
	if w.notifications {
		rule, _ := models.PermNotificationList.Rule()
		if err := rule.Admit(viewer(c), s.staffFactor); err != nil {
			return nil, err
		}
		targets = append(targets, models.Target{Kind: kindNotifications, ID: viewerID(c)})
	}
	switch {
	case len(targets) == 0 && len(w.tags) > 0:
		return nil, models.Errorf(models.CodeNotFound, "None of these tags exist.")
	case len(targets) == 0:
		return nil, models.Invalid("posts",
			models.Missing().Saying("must name what to follow, unless another field does"))
	}
	return targets, nil
}
