package db_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// A MySQL that hangs costs the first few calls their deadline, and those after them nothing.
func TestStore_rejectsAtOnceWhileMySQLIsDown(t *testing.T) {
	server, err := servers.StartMySQL(t.Context(), filepath.Join(t.TempDir(), "mysql"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	_, err = server.Migrate(t.Context(), "likewise")
	require.NoError(t, err)
	store, err := db.Open(t.Context(), server.DSN("likewise"), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")

	ask := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := accounts.New(store).UserByID(ctx, author.ID)
		return err
	}
	require.NoError(t, ask())
	require.NoError(t, server.Pause())
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		err := ask()
		if err == nil {
			return false, "a signal takes its time: the server still answers"
		}
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
		return errors.Is(err, gobreaker.ErrOpenState), err.Error()
	})
	// Once a second a call is let through, whichever it is; the next one of its kind is not.
	for what, call := range map[string]func(context.Context) error{
		"a transaction is not begun": func(ctx context.Context) error {
			_, err := content.New(store).CreateComment(ctx, author, 1, nil, models.CommentText{Content: "a comment"})
			return err
		},
		"it is not called ready": store.Ping,
	} {
		testkit.Eventually(t, time.Minute, func() (bool, string) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			err := call(ctx)
			require.Error(t, err)
			return errors.Is(err, gobreaker.ErrOpenState), what + ": " + err.Error()
		})
	}

	require.NoError(t, server.Resume())
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		err := ask()
		return err == nil, "it does not notice that MySQL is back"
	})
	for range 20 {
		_, err := accounts.New(store).UserByID(t.Context(), 999)
		assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "an answer that says no is an answer")
	}
}

// Calls that wait for a connection until their time is over report nothing about the server.
func TestStore_staysAvailableWithBusyConnections(t *testing.T) {
	t.Parallel()
	store := openWith(t, db.Options{MaxConns: 1})
	author := newUser(t, store, "ada")
	busy, err := store.Pool().Conn(t.Context())
	require.NoError(t, err)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := accounts.New(store).UserByID(ctx, author.ID)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
	}
	require.NoError(t, busy.Close())
	_, err = accounts.New(store).UserByID(t.Context(), author.ID)
	require.NoError(t, err)
}

// A server that takes no writes, because it is read-only or its disk is full, is not away: what needs no write goes on.
func TestStore_readsFromReadOnlyMySQL(t *testing.T) {
	t.Parallel()
	server, err := servers.StartMySQL(t.Context(), filepath.Join(t.TempDir(), "mysql"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	_, err = server.Migrate(t.Context(), "likewise")
	require.NoError(t, err)
	admin, err := sql.Open("mysql", server.DSN("likewise"))
	require.NoError(t, err)
	t.Cleanup(func() { admin.Close() })
	exec := func(statement string) {
		_, err := admin.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("CREATE USER 'ordinary'@'127.0.0.1' IDENTIFIED BY 'password'") // an administrator may write all the same
	exec("GRANT ALL ON likewise.* TO 'ordinary'@'127.0.0.1'")
	ordinary, err := mysql.ParseDSN(server.DSN("likewise"))
	require.NoError(t, err)
	ordinary.User, ordinary.Passwd = "ordinary", "password"
	store, err := db.Open(t.Context(), ordinary.FormatDSN(), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")
	post := newPost(t, store, author)

	exec("SET GLOBAL read_only = 1")
	for range 20 {
		_, err := accounts.New(store).CreateSession(t.Context(), author.ID)
		require.Error(t, err)
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
		assert.NotErrorIs(t, err, gobreaker.ErrOpenState)
	}
	_, err = accounts.New(store).UserByID(t.Context(), author.ID)
	require.NoError(t, err)
	exec("SET GLOBAL read_only = 0")
	newComment(t, store, author, post, nil)
}

// network is what a Store reaches MySQL by. It can be made to misbehave.
type network struct {
	refuses, hangs atomic.Bool // new connections
	hanging        atomic.Int32

	mu    sync.Mutex
	conns []*networkConn
}

type networkConn struct {
	net.Conn
	stalled atomic.Bool
	closed  chan struct{}
	end     sync.Once
}

func (c *networkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.stalled.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *networkConn) Close() error {
	c.end.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// storeBehind opens a store whose connections go through n.
func storeBehind(t *testing.T, n *network) *db.DB {
	t.Helper()
	dsn, err := mysql.ParseDSN(testkit.Database(t))
	require.NoError(t, err)
	through := dsn.Net
	dsn.Net = "network" + strings.ToLower(rand.Text())
	mysql.RegisterDialContext(dsn.Net, func(ctx context.Context, address string) (net.Conn, error) {
		if n.hangs.Load() {
			n.hanging.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if n.refuses.Load() {
			return nil, syscall.ECONNREFUSED
		}
		c, err := (&net.Dialer{}).DialContext(ctx, through, address)
		if err != nil {
			return nil, err
		}
		conn := &networkConn{Conn: c, closed: make(chan struct{})}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.conns = append(n.conns, conn)
		return conn, nil
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(dsn.Net) })
	store, err := db.Open(t.Context(), dsn.FormatDSN(), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// A statement that its client gave up reports nothing about the server.
func TestStore_staysAvailableAfterCanceledStatements(t *testing.T) {
	t.Parallel()
	var n network
	store := storeBehind(t, &n)
	author := newUser(t, store, "ada")
	var open []*sql.Conn
	for range 8 {
		conn, err := store.Pool().Conn(t.Context())
		require.NoError(t, err)
		open = append(open, conn)
	}
	for _, conn := range open {
		require.NoError(t, conn.Close())
	}
	n.mu.Lock()
	stalled := slices.Clone(n.conns)
	n.mu.Unlock()
	for _, conn := range stalled {
		conn.stalled.Store(true)
	}
	for range open {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := accounts.New(store).UserByID(ctx, author.ID)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	_, err := accounts.New(store).UserByID(t.Context(), author.ID)
	require.NoError(t, err)
}

// While MySQL is away one call at a time tries whether it is back, and the others are refused until one succeeds. One
// that is given up is not a success.
func TestStore_admitsOneProbeAtATime(t *testing.T) {
	t.Parallel()
	var n network
	store := storeBehind(t, &n)
	n.refuses.Store(true)
	n.mu.Lock()
	for _, conn := range n.conns {
		require.NoError(t, conn.Close())
	}
	n.mu.Unlock()
	ping := func() error { return store.Ping(t.Context()) }
	refused := func() (bool, string) {
		err := ping()
		return errors.Is(err, gobreaker.ErrOpenState), fmt.Sprint(err)
	}
	tried := func() (bool, string) {
		err := ping()
		return !errors.Is(err, gobreaker.ErrOpenState), fmt.Sprint(err)
	}
	testkit.Eventually(t, time.Minute, refused)

	n.hangs.Store(true)
	for range 2 { // the second trial comes at once, because the first is given up
		ctx, giveUp := context.WithCancel(t.Context())
		before := n.hanging.Load()
		ended := make(chan error, 1)
		go func() {
			for {
				if err := store.Ping(ctx); !errors.Is(err, gobreaker.ErrOpenState) || ctx.Err() != nil {
					ended <- err
					return
				}
			}
		}()
		testkit.Eventually(t, time.Minute, func() (bool, string) { return n.hanging.Load() > before, "no call tries" })
		for range 20 {
			require.ErrorIs(t, ping(), gobreaker.ErrTooManyRequests)
		}
		require.Equal(t, before+1, n.hanging.Load(), "calls that try")
		giveUp()
		require.ErrorIs(t, <-ended, context.Canceled)
	}

	n.hangs.Store(false)
	testkit.Eventually(t, time.Minute, tried) // and fails
	require.ErrorIs(t, ping(), gobreaker.ErrOpenState, "a failed trial is followed by another")
	n.refuses.Store(false)
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		err := ping()
		return err == nil, fmt.Sprint(err)
	})
	for range 20 {
		require.NoError(t, ping())
	}
}

func TestStore_closesConnectionsThatWereCut(t *testing.T) {
	t.Parallel()
	var made []net.Conn // the store is opened and used by this goroutine alone
	mysql.RegisterDialContext("cuttable", func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		made = append(made, c)
		return c, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext("cuttable") })
	dsn, err := mysql.ParseDSN(testkit.Database(t))
	require.NoError(t, err)
	dsn.Net = "cuttable"
	store, err := db.Open(t.Context(), dsn.FormatDSN(), db.Options{})
	require.NoError(t, err)
	newUser(t, store, "ada")
	require.Positive(t, store.Pool().Stats().Idle)
	for _, c := range made {
		require.NoError(t, c.Close())
	}
	require.NoError(t, store.Close())
}

// A server that holds a COMMIT, as one that waits for space on its disk, holds no caller beyond its time.
func TestStore_commitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server, err := servers.StartMySQL(t.Context(), filepath.Join(t.TempDir(), "mysql"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	_, err = server.Migrate(t.Context(), "likewise")
	require.NoError(t, err)
	store, err := db.Open(t.Context(), server.DSN("likewise"), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")
	admin, err := sql.Open("mysql", server.DSN("likewise"))
	require.NoError(t, err)
	defer admin.Close()
	conn, err := admin.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	var version string
	require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	lock, unlock := []string{"FLUSH TABLES WITH READ LOCK"}, "UNLOCK TABLES"
	if strings.Contains(version, "MariaDB") { // which can hold the COMMIT alone
		lock = []string{
			"BACKUP STAGE START", "BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_DDL", "BACKUP STAGE BLOCK_COMMIT",
		}
		unlock = "BACKUP STAGE END"
	}
	for _, statement := range lock {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = accounts.New(store).CreateSession(ctx, author.ID)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 10*time.Second, "the driver's read timeout is 15 s")
	_, err = conn.ExecContext(t.Context(), unlock)
	require.NoError(t, err)
	_, err = accounts.New(store).CreateSession(t.Context(), author.ID)
	require.NoError(t, err)
}
