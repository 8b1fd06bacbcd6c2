package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/webhooks"
)

var webhookEvents = flag.Int("webhook-events", 480, "events that the test of webhooks delivers; a multiple of 240")

// receiver is a site that receives webhooks. It can be killed and started again at its address.
type receiver struct {
	t       *testing.T
	address string

	mu       sync.Mutex
	server   *http.Server
	requests int
	refuse   bool              // answers 500
	slow     time.Duration     // before the answer
	refused  int               // requests
	seen     map[string]bool   // events, by their ids
	versions map[int64][]int64 // of each comment, in the order in which they came first
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var event struct {
		Data struct{ ID, Version int64 }
	}
	if err := json.NewDecoder(request.Body).Decode(&event); err != nil {
		return // the sender was killed
	}
	r.mu.Lock()
	refuse, slow := r.refuse, r.slow
	r.requests++
	if refuse {
		r.refused++
	} else if id := request.Header.Get("Webhook-Id"); !r.seen[id] {
		r.seen[id] = true
		r.versions[event.Data.ID] = append(r.versions[event.Data.ID], event.Data.Version)
	}
	r.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
	if refuse {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// serve starts the receiver, and kill breaks all its connections.
func (r *receiver) serve(refuse bool, slow time.Duration) {
	r.t.Helper()
	listener, err := net.Listen("tcp", r.address)
	require.NoError(r.t, err)
	r.behave(refuse, slow)
	server := &http.Server{Handler: r, ReadHeaderTimeout: patience}
	r.mu.Lock()
	r.server = server
	r.mu.Unlock()
	go func() { _ = server.Serve(listener) }() // until kill
}

func (r *receiver) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		_ = r.server.Close()
	}
}

func (r *receiver) behave(refuse bool, slow time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse, r.slow = refuse, slow
}

// await waits until the receiver has accepted n events, and refused some if refused is set.
func (r *receiver) await(n int, refused bool) {
	r.t.Helper()
	testkit.Eventually(r.t, 10*patience, func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.seen) >= n && (!refused || r.refused > 0), fmt.Sprintf("%d events of %d", len(r.seen), n)
	})
}

// A receiver that is down, answers 500, is slow or is killed gets every event, and in the order of each object, though
// the processes that deliver are killed as well.
func TestWebhooks_deliverEveryEventInOrder(t *testing.T) {
	t.Parallel()
	const writers, edits = 8, 9
	comments := *webhookEvents / writers / (edits + 1) / 3 // of a writer, in each third
	s := newSite(t)
	dsn := strings.TrimPrefix(s.env[0], "LIKEWISE_MYSQL_DSN=")
	store, err := db.Open(t.Context(), dsn, db.Options{MaxConns: writers, Describe: webhooks.Describe})
	require.NoError(t, err)
	defer store.Close()
	ada := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), ada))
	require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleAdmin))

	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &receiver{t: t, address: free.Addr().String(), seen: map[string]bool{}, versions: map[int64][]int64{}}
	free.Close()
	t.Cleanup(r.kill)
	events := models.WebhookTypes{models.CommentCreated, models.CommentEdited}
	_, err = webhooks.New(store).CreateWebhook(t.Context(), ada.ID,
		models.WebhookSettings{URL: "http://" + r.address, Events: events, Active: true}, true)
	require.NoError(t, err)

	author := models.Author{ID: ada.ID, Username: ada.Username}
	write := func() {
		t.Helper()
		var running sync.WaitGroup
		for range writers {
			running.Go(func() {
				ctx := context.Background()
				post, err := content.New(store).CreatePost(ctx, author, models.PostText{Title: "A post",
					Content: "text"})
				for i := 0; i < comments && assert.NoError(t, err); i++ {
					var c *models.Comment
					c, err = content.New(store).CreateComment(ctx, author, post.ID, nil,
						models.CommentText{Content: "a comment"})
					for version := int64(0); version < edits && assert.NoError(t, err); version++ {
						text := models.CommentText{Content: fmt.Sprintf("edit %d", version)}
						_, err = content.New(store).UpdateComment(ctx, author.ID, c.ID, version, text)
					}
				}
			})
		}
		running.Wait()
	}
	third := writers * comments * (edits + 1)
	var crons []*process
	restart := func() {
		t.Helper()
		for _, p := range crons {
			p.Kill()
		}
		crons = []*process{s.start("cron", "--webhook-allow-private"), s.start("cron", "--webhook-allow-private")}
	}

	began := time.Now()
	restart()
	write() // while nothing listens
	testkit.Eventually(t, patience, func() (bool, string) {
		return s.count("SELECT COUNT(*) FROM webhooks WHERE failing_since IS NOT NULL") == 1, "no attempt has failed"
	})
	r.serve(true, 0)
	write() // while it answers 500
	r.await(0, true)
	r.behave(false, 20*time.Millisecond)
	r.await(third/2, false)
	restart()
	write()
	r.await(third, false)
	r.kill() // with requests under way
	restart()
	r.serve(false, 0)
	r.await(3*third, false)
	testkit.Eventually(t, patience, func() (bool, string) {
		n := s.count("SELECT COUNT(*) FROM webhook_events WHERE state<>2")
		return n == 0, fmt.Sprintf("%d events are not recorded as delivered", n)
	})
	t.Logf("%d events in %d requests, %d of them refused, after %s", 3*third, r.requests, r.refused, time.Since(began))

	assert.Len(t, r.versions, 3*writers*comments)
	var want []int64
	for version := range int64(edits + 1) {
		want = append(want, version)
	}
	for id, versions := range r.versions {
		if !slices.Equal(want, versions) {
			t.Errorf("comment %d: the versions came in the order %v", id, versions)
		}
	}
	for _, p := range crons {
		p.stop()
	}
}
