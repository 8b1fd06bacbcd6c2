package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/migrations"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/webhooks"
)

// alone is an outage by one fault.
func alone(
	name string, site func(*testing.T) *watched, cause func(*watched), fires []string, may ...string,
) outage {
	return outage{name, site, []fault{{name, cause, fires}}, may}
}

// outages are the outages that the alerts are for. Faults that hit different parts share a site.
var outages = []outage{
	alone("nothing: every process is restarted once", shared, (*watched).restartAll, nil),
	{"no api and no cron", withPages, []fault{
		{"no api runs", kills("api"), []string{"LikewiseNoAPI", "LikewiseTargetDown", "LikewisePagesFail"}},
		{"no cron runs", kills("cron"), []string{"LikewiseNoCron", "LikewiseTargetDown"}},
	}, nil},
	alone("no worker runs", shared, kills("worker"), []string{"LikewiseNoWorker", "LikewiseTargetDown"}),
	alone("no web runs", withPages, kills("web"), []string{"LikewiseNoWeb", "LikewiseTargetDown"}),
	{"one of several", withSecondProcesses, []fault{
		{"one of two workers hangs", func(w *watched) {
			w.extra[0].Signal(syscall.SIGSTOP)
		}, []string{"LikewiseTargetDown"}},
		{"one of two apis does not reach MySQL", func(w *watched) { w.apart.close() }, []string{"LikewiseCutOff"}},
	}, nil},

	alone("MySQL is down", own, func(w *watched) { require.NoError(w.t, w.servers.MySQL.Kill()) },
		[]string{"LikewiseMySQLDown", "LikewiseErrors", "LikewiseLikesWait"}, "LikewiseClaimsRefused"),
	alone("the disk of MySQL is full", onSmallDisk, (*watched).fillMySQL,
		[]string{"LikewiseMySQLRefusesWrites", "LikewiseErrors"},
		"LikewiseLikesWait", "LikewiseJobsFail", "LikewiseClaimsRefused"),
	alone("MySQL is read-only", own, func(w *watched) { w.admin("SET GLOBAL read_only=1") },
		[]string{"LikewiseMySQLRefusesWrites", "LikewiseErrors", "LikewiseLikesWait"},
		"LikewiseJobsFail", "LikewiseClaimsRefused"),
	alone("Redis hangs", own, func(w *watched) { require.NoError(w.t, w.servers.Redis.Pause()) },
		[]string{"LikewiseRedisDown", "LikewiseErrors", "LikewiseLikesRefused", "LikewiseClaimsRefused"}),
	alone("Redis is full", own, (*watched).fillRedis,
		[]string{"LikewiseRedisFull", "LikewiseErrors", "LikewiseLikesRefused", "LikewiseClaimsRefused"}),
	alone("Kafka is down, and the outbox becomes full", withSmallOutbox,
		func(w *watched) { require.NoError(w.t, w.servers.Kafka.Kill()) },
		[]string{
			"LikewiseKafkaDown", "LikewiseLikesWait", "LikewiseOutboxFilling", "LikewiseLikesRefused", "LikewiseErrors",
		}, "LikewiseClaimsRefused"),
	alone("Redis is restarted while Kafka is down", own, func(w *watched) {
		require.NoError(w.t, w.servers.Kafka.Kill())
		require.NoError(w.t, w.servers.Redis.Kill())
		require.NoError(w.t, w.servers.Redis.Start(w.t.Context()))
	}, []string{
		"LikewiseShardsClosed", "LikewiseKafkaDown", "LikewiseLikesRefused", "LikewiseClaimsRefused", "LikewiseErrors",
	}, "LikewiseLikesWait"),

	alone("a transaction holds the rows of the writer", shared, (*watched).holdShards, []string{"LikewiseLikesWait"}),
	alone("Kafka loses records", shared, (*watched).loseOutbox, []string{"LikewiseEventsLost"}, "LikewiseDrift"),
	{"data and jobs", withWebhook, []fault{
		{"an event cannot be read", (*watched).sendGarbage, []string{"LikewiseDeadLetters"}},
		{"transactions end in a deadlock", (*watched).deadlock, []string{"LikewiseDeadlocks"}},
		{"keys of a target are deleted in Redis", (*watched).deleteKeys, []string{"LikewiseTargetDamaged"}},
		{"a count is changed by hand", func(w *watched) {
			w.exec("UPDATE posts SET comments_count=comments_count+7")
		}, []string{"LikewiseDrift"}},
		{"the endpoint of a webhook fails", func(w *watched) {
			w.exec("UPDATE webhook_events SET created_at=created_at-INTERVAL 20 MINUTE")
		}, []string{"LikewiseWebhookBehind"}},
		{"the mail server is away", (*watched).queueMail, []string{"LikewiseMailLate"}},
		{"a job fails", func(w *watched) { w.exec("RENAME TABLE exports TO exports_gone") },
			[]string{"LikewiseJobsFail"}},
	}, nil},
}

func kills(role string) func(*watched) { return func(w *watched) { w.roles[role].Kill() } }

// shared makes a site on servers that others use, too.
func shared(t *testing.T) *watched {
	t.Helper()
	return &watched{site: newSite(t)}
}

// own makes a site on servers of its own, with an ordinary account of MySQL.
func own(t *testing.T) *watched {
	t.Helper()
	return ownWatched(t, testkit.Servers(t))
}

func ownWatched(t *testing.T, all *servers.All) *watched {
	t.Helper()
	s := siteOn(t, all)
	w := &watched{site: s, servers: all}
	w.admin("CREATE USER 'ordinary'@'127.0.0.1' IDENTIFIED BY 'a long password'")
	w.admin("GRANT ALL ON likewise.* TO 'ordinary'@'127.0.0.1'")
	w.asAccount("ordinary", "a long password")
	return w
}

// onSmallDisk makes a site whose tables have a disk of their own, which can be filled. MariaDB ends itself if its logs
// cannot be written either. It needs root.
func onSmallDisk(t *testing.T) *watched {
	t.Helper()
	all := testkit.Servers(t)
	disk := filepath.Join(all.MySQL.Dir(), "data", "likewise") // the folder of a database
	require.NoError(t, os.Mkdir(disk, 0o700))
	require.NoError(
		t,
		syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=100m,mode=700"),
		"make test-alerts runs it as root",
	)
	t.Cleanup(func() {
		assert.NoError(t, all.MySQL.Kill())
		assert.NoError(t, syscall.Unmount(disk, 0))
	})
	return ownWatched(t, all)
}

func withSmallOutbox(t *testing.T) *watched {
	t.Helper()
	w := own(t)
	w.apiArgs = []string{"--outbox-limit=40"}
	return w
}

// withSecondProcesses makes a site with a second worker and a second api, which reaches MySQL through a proxy.
func withSecondProcesses(t *testing.T) *watched {
	t.Helper()
	w := shared(t)
	dsn, err := mysql.ParseDSN(w.dsn())
	require.NoError(t, err)
	w.apart = newRelayed(t, dsn.Addr)
	dsn.Addr = w.apart.listener.Addr().String()
	w.more = [][]string{{"worker"}, {"api", "--mysql-dsn=" + dsn.FormatDSN()}}
	return w
}

func withPages(t *testing.T) *watched {
	t.Helper()
	return &watched{site: newSite(t), pages: true}
}

func withWebhook(t *testing.T) *watched {
	t.Helper()
	w := shared(t)
	store, err := db.Open(t.Context(), w.dsn(), db.Options{})
	require.NoError(t, err)
	defer store.Close()
	ada := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), ada))
	require.NoError(t, accounts.New(store).SetRole(t.Context(), ada.ID, models.RoleAdmin))
	_, err = webhooks.New(store).CreateWebhook(t.Context(), ada.ID, models.WebhookSettings{
		URL: "http://127.0.0.1:1/", Events: models.WebhookTypes{models.CommentCreated}, Active: true,
	}, true)
	require.NoError(t, err)
	w.workerArgs = withMail(t, "smtp://127.0.0.1:1")
	return w
}

// queueMail queues a mail that has waited for long. Nothing listens where withWebhook expects the mail server.
func (w *watched) queueMail() {
	w.exec(`
		INSERT INTO mails (kind, address, created_at, due_at)
		VALUES ('password_reset', 'script-1@likewise.example', NOW(3)-INTERVAL 20 MINUTE, NOW(3)+INTERVAL 1 HOUR)`)
}

func (w *watched) dsn() string { return strings.TrimPrefix(w.env[0], "LIKEWISE_MYSQL_DSN=") }

// asAccount makes the roles use another account of MySQL.
func (w *watched) asAccount(name, password string) {
	w.t.Helper()
	dsn, err := mysql.ParseDSN(w.dsn())
	require.NoError(w.t, err)
	dsn.User, dsn.Passwd = name, password
	w.env[0] = "LIKEWISE_MYSQL_DSN=" + dsn.FormatDSN()
}

// admin runs a statement as the administrator of the site's own MySQL.
func (w *watched) admin(statement string) {
	w.t.Helper()
	db, err := sql.Open("mysql", w.servers.MySQL.DSN(""))
	require.NoError(w.t, err)
	defer db.Close()
	_, err = db.ExecContext(w.t.Context(), statement)
	require.NoError(w.t, err, statement)
}

// restartAll restarts the roles one after the other at their addresses, as an upgrade does.
func (w *watched) restartAll() {
	w.t.Helper()
	for _, role := range []string{"worker", "api", "cron"} {
		old := w.roles[role]
		args := []string{role, "--admin-listen=" + strings.TrimPrefix(old.admin(), "http://")}
		if role == "api" {
			args = append(args, "--listen="+strings.TrimPrefix(w.url, "http://"))
		}
		old.stop()
		w.roles[role] = w.start(args...)
		w.roles[role].admin()
	}
}

// fillRedis leaves Redis no memory for anything new.
func (w *watched) fillRedis() {
	w.t.Helper()
	require.NoError(w.t, w.raw().ConfigSet(w.t.Context(), "maxmemory", "1mb").Err())
}

// fillMySQL leaves the tables no room, and lets users send posts, until MySQL refuses one and from then on. Each fits
// into its row, because MariaDB 10.11 ends itself if a text outside of its row finds no space.
func (w *watched) fillMySQL() {
	w.t.Helper()
	fillDisk(w.t, filepath.Join(w.servers.MySQL.Dir(), "data", "likewise"))
	text := obj{"title": "A post", "content": strings.Repeat("A text. ", 250)}
	refused := func() (bool, string) {
		r, err := send(w.t, w.url, w.users[0], "POST", "/v1/posts", text)
		return err == nil && r.status >= 500, "MySQL still writes"
	}
	testkit.Eventually(w.t, patience, refused)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() {
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
			_, _ = refused()
		}
	})
}

// holdShards locks the rows that the writer changes.
func (w *watched) holdShards() {
	w.t.Helper()
	tx, err := w.db.BeginTx(context.Background(), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(w.t.Context(), "SELECT shard FROM like_shards FOR UPDATE")
	require.NoError(w.t, err)
}

// sendGarbage puts a run into an outbox that no version writes.
func (w *watched) sendGarbage() {
	w.t.Helper()
	add := w.raw().Do(w.t.Context(), "XADD", "{s05}:outbox", "1-*", "run", "no run at all\n", "before", 1)
	require.NoError(w.t, add.Err())
}

// deleteKeys deletes the sets of users of warm targets.
func (w *watched) deleteKeys() {
	w.t.Helper()
	client := w.raw()
	keys, err := client.Keys(w.t.Context(), "*:post:*:likes:*:*").Result()
	require.NoError(w.t, err)
	require.NotEmpty(w.t, keys)
	require.NoError(w.t, client.Del(w.t.Context(), keys...).Err())
}

// loseOutbox removes events that wait for Kafka, as if Kafka had acknowledged and lost them.
func (w *watched) loseOutbox() {
	w.t.Helper()
	client := w.raw()
	worker := w.roles["worker"].Pid()
	require.NoError(w.t, syscall.Kill(worker, syscall.SIGSTOP))
	outbox := fmt.Sprintf("{s%02d}:outbox", w.post.ID%migrations.DefaultShards)
	testkit.Eventually(w.t, patience, func() (bool, string) {
		n, err := client.XLen(w.t.Context(), outbox).Result()
		return err == nil && n > 2, "nobody likes"
	})
	require.NoError(w.t, client.XTrimMaxLen(w.t.Context(), outbox, 0).Err())
	require.NoError(w.t, syscall.Kill(worker, syscall.SIGCONT))
}

// deadlock makes a reply wait for its parent in one transaction, and lets another that holds the parent wait for it.
func (w *watched) deadlock() {
	w.t.Helper()
	t := w.t
	ada := w.users[1]
	var parent contentJSON
	call(t, w.url, ada, "POST", w.post.path()+"/comments", obj{"content": "A comment."}, 201, &parent)
	for n := range 200 {
		w.exec(`
			INSERT INTO users (username, email, password_hash)
			VALUES (CONCAT('user', ?), CONCAT(?, '@example.org'), '')`, n, n)
	}
	for met := false; !met; {
		tx, err := w.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, statement := range []string{
			"UPDATE users SET bio='changed' WHERE username LIKE 'user%'", // the server ends what has changed less
			fmt.Sprintf("UPDATE comments SET content='locked' WHERE id=%d", parent.ID),
		} {
			_, err := tx.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = send(
				t,
				w.url,
				ada,
				"POST",
				fmt.Sprintf("/v1/comments/%d/replies", parent.ID),
				obj{"content": "A reply."},
			)
		}()
		testkit.Eventually(t, patience, func() (bool, string) {
			return w.count(`
				SELECT COUNT(*)
				FROM information_schema.processlist
				WHERE db=DATABASE() AND info LIKE 'UPDATE comments FORCE INDEX (PRIMARY)%'`) > 0,
				"the reply does not wait"
		})
		_, err = tx.ExecContext(t.Context(), "UPDATE posts SET title='locked' WHERE id=?", w.post.ID)
		met = err == nil &&
			scrape(t, w.roles["api"].admin())[`likewise_transaction_retries_total{cause="deadlock"}`] > 0
		_ = tx.Rollback()
		<-answered
	}
}

// fillDisk fills the disk of a folder to the last byte.
func fillDisk(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	defer f.Close()
	var size int64
	for step := int64(64 << 20); step >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, step); {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case !errors.Is(err, unix.EINTR):
			require.NoError(t, err)
		}
	}
}

// relayed is a TCP proxy that can end, with all its connections.
type relayed struct {
	listener net.Listener
	mu       sync.Mutex
	closed   bool
	conns    []net.Conn
	running  sync.WaitGroup
}

func newRelayed(t *testing.T, to string) *relayed {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relayed{listener: listener}
	t.Cleanup(r.close)
	r.running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			r.pass(in, out)
		}
	})
	return r
}

func (r *relayed) pass(in, out net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, in, out)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		r.running.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // until one side ends
			pair[0].Close()
		})
	}
	if r.closed {
		in.Close()
		out.Close()
	}
}

func (r *relayed) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}
