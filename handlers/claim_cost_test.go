package handlers_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// sentStatements are the statements that a store has sent to MySQL.
type sentStatements struct {
	mu    sync.Mutex
	list  []string // as sent
	count int64    // of the first ones, too, which a caller of take may have dropped
	feeds int      // readings of the changes of sessions, which do not count otherwise

	waitsFor string // see onceAfter
	run      func()
}

// onceAfter calls run when the next statement that contains a text was answered, before the store sees the answer.
func (s *sentStatements) onceAfter(text string, run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitsFor, s.run = text, run
}

// takeRun returns the function of onceAfter if it was waiting for the statement, else nil.
func (s *sentStatements) takeRun(statement string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || !strings.Contains(statement, s.waitsFor) {
		return nil
	}
	run := s.run
	s.run = nil
	return run
}

const maxStatements = 10_000

// take returns the statements since the last call.
func (s *sentStatements) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	for i, statement := range list {
		list[i] = testkit.Unlimited(statement)
	}
	return list
}

func (s *sentStatements) add(statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.Contains(statement, "FROM session_changes"):
		s.feeds++
		return
	case strings.HasPrefix(statement, "SET ") && !strings.HasPrefix(statement, "SET STATEMENT "): // of a new connection
		return
	}
	s.count++
	s.list = append(s.list, statement)
	if len(s.list) == maxStatements {
		s.list = nil // nobody takes them
	}
}

// recorded is a connection that records what it sends. The driver writes each packet whole: four bytes of length and
// number, then 3 for a query or 22 for a statement to prepare.
type recorded struct {
	net.Conn
	statements *sentStatements
	run        func() // after the next answer
}

func (c *recorded) Write(b []byte) (int, error) {
	if len(b) > 5 && b[3] == 0 && (b[4] == 3 || b[4] == 22) {
		statement := string(b[5:])
		c.statements.add(statement)
		c.run = c.statements.takeRun(statement)
	}
	return c.Conn.Write(b)
}

func (c *recorded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if run := c.run; run != nil {
		c.run = nil
		run()
	}
	return n, err
}

// openRecorded opens a store whose statements are recorded.
func openRecorded(t *testing.T, dsn string) (*db.DB, *sentStatements) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	sent := &sentStatements{}
	network := "recorded-" + config.DBName
	mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return &recorded{Conn: conn, statements: sent}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(network) })
	config.Net = network
	return openStore(t, config.FormatDSN()), sent
}

// A crowd that comes too late must not reach MySQL. Relay and writer have a store of their own, so every statement that
// is recorded is one of the API. The clock stands still, so that no cached session expires.
func TestClaim_ofASoldOutDropCostsNoQuery(t *testing.T) {
	t.Parallel()
	const crowd = 20
	dsn, url, now := testkit.Database(t), redisURL(t), time.Now()
	workers := openStore(t, dsn)
	r, _, settle := pipelineOn(t, workers, url)
	store, sent := openRecorded(t, dsn)
	likes := counters.NewLikes(r, store, counters.LikesOptions{})
	a := serve(t, store, behindGate(likes, likes), limited(t, url, 1), func(c *handlers.Config) {
		c.Claims, c.IDs = counters.NewClaims(r, store, counters.ClaimsOptions{}), counters.NewIDs(r, store)
		c.Now = func() time.Time { return now }
	})
	ada := a.account(t)
	p := a.newPost(t, ada)
	drop, err := stock.New(store).CreateDrop(t.Context(), ada.ID, p.ID, models.DropSettings{Title: "Voucher", Stock: 2})
	require.NoError(t, err)
	claims := fmt.Sprintf("/v1/drops/%d/claims", drop.ID)
	late := a.accounts(t, crowd)
	for _, u := range late {
		a.must(t, 200, u, "GET", "/v1/me", nil) // caches the session
	}
	a.must(t, 201, ada, "POST", claims, nil)
	early := a.account(t)
	a.must(t, 200, early, "GET", "/v1/me", nil)
	sent.take()
	a.must(t, 201, early, "POST", claims, nil)
	assert.Empty(t, sent.take(), "the claim of a warm drop")

	for i, u := range late {
		if i == crowd/2 {
			settle() // the claims have their rows
			sent.take()
		}
		a.refused(t, 409, "sold_out", u, "POST", claims, nil)
	}
	assert.Empty(t, sent.take(), "claims of a drop that is sold out")

	a.must(t, 200, early, "POST", claims, nil)
	assert.True(t, slices.ContainsFunc(sent.take(), func(s string) bool { return strings.Contains(s, "FROM claims") }),
		"statements are recorded")
}
