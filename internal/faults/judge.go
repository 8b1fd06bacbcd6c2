package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"likewise/internal/faults/oracle"
)

// record has all operations of the clients, after they have stopped.
type record struct {
	registers []*oracle.Register
	creations []*oracle.Creation
	viewer    *oracle.Account // an account on which no moderator acts
	users     []*oracle.Account
}

// judgeAll compares the answers that the clients recorded with the state of the site. The clients must have stopped.
func (st *storm) judgeAll(ctx context.Context, rec *record) error {
	if err := st.awaitExpiry(ctx); err != nil {
		return err
	}
	at := st.site.since()
	if st.site.logLosses.Load() > 0 {
		if err := st.awaitReconciled(ctx); err != nil {
			return err
		}
	}
	// A target whose deletion met a fault is closed by a job. The likes to withdraw are those that the writer has
	// applied, and the withdrawals are likes, too.
	for _, job := range []string{"close", "flush", "void", "claims", "flush"} {
		if out, err := st.site.command(ctx, "cron", "run", job, "--timeout=60s"); err != nil {
			st.violations.Addf(oracle.Kind(job+" fails"), at, "at the end: %v: %s", err, out)
		}
	}
	if err := st.judgeClaims(ctx, st.judge(), rec.users); err != nil {
		return err
	}
	if err := st.sellRest(ctx, rec.users); err != nil {
		return err
	}
	st.verify(ctx)
	j := st.judge()
	contents := map[string][]oracle.Content{}
	var rows []oracle.RegisterKey
	for _, kind := range []string{"posts", "comments"} {
		var err error
		if contents[kind], err = st.contents(ctx, kind); err != nil {
			return err
		}
		j.Counts(kind, contents[kind])
		j.Creations(kind, contents[kind], rec.creations)
		likes, err := st.likes(ctx, kind)
		if err != nil {
			return err
		}
		rows = append(rows, likes...)
	}
	inMySQL := j.Likes(rec.registers, rows)
	if err := st.judgeNotices(ctx, j, rec.registers, contents, inMySQL); err != nil {
		return err
	}
	if err := st.judgeLosses(ctx); err != nil {
		return err
	}
	if err := st.judgeModeration(ctx, st.moderators, rec.viewer); err != nil {
		return err
	}
	return st.judgeAPI(ctx, j, rec, inMySQL)
}

// judge returns a judge of what has happened so far.
func (st *storm) judge() *oracle.Judge {
	return &oracle.Judge{
		Violations: st.violations, Conditions: st.site.conditions(), At: st.site.since(), Known: st.known,
	}
}

// awaitReconciled waits until no gap is open.
func (st *storm) awaitReconciled(ctx context.Context) error {
	for begin := time.Now(); time.Since(begin) < patience; {
		_, _ = st.site.command(ctx, "cron", "run", "reconcile", "--timeout=60s") // cron may be running it
		var n int
		err := st.site.db.QueryRowContext(ctx,
			"SELECT COUNT(*) FROM "+database+".like_gaps WHERE reconciled_at IS NULL").Scan(&n)
		if err != nil || n == 0 {
			return err
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil // judgeLosses counts what is left
}

// verify runs the product's own comparison of Redis and MySQL.
func (st *storm) verify(ctx context.Context) {
	if out, err := st.site.command(ctx, "verify"); err != nil || !strings.Contains(out, " 0 differences,") {
		st.violations.Addf("verify differs", st.site.since(), "at the end: %v: %s", err, tail(out, 2000))
	}
}

// judgeLosses checks that the product has recorded no gaps and no dead letters. The product repairs them from Redis, so
// clients do not notice them, but none of the faults may cause them. If a fault took events from the log, there are
// gaps, and the reconciler has repaired them all.
func (st *storm) judgeLosses(ctx context.Context) error {
	gaps := "like_gaps"
	if st.site.logLosses.Load() > 0 {
		gaps = "like_gaps WHERE reconciled_at IS NULL"
	}
	for _, table := range []string{gaps, "dead_letters"} {
		var n int
		if err := st.site.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+database+"."+table).Scan(&n); err != nil {
			return fmt.Errorf("read %s: %w", table, err)
		}
		if n > 0 {
			st.violations.Addf("an event went missing and was mended", st.site.since(), "%s has %d rows", table, n)
		}
	}
	return nil
}

// contents reads all posts or comments, with their counts and the numbers of their rows.
func (st *storm) contents(ctx context.Context, kind string) ([]oracle.Content, error) {
	query := `
		SELECT p.id, 0, p.title, p.likes_count, p.comments_count,
			(SELECT COUNT(*) FROM post_likes l WHERE l.post_id = p.id),
			(SELECT COUNT(*) FROM comments c WHERE c.post_id = p.id AND c.deleted_at IS NULL)
		FROM posts p`
	if kind == "comments" {
		query = `
		SELECT c.id, c.post_id, c.content, c.likes_count, 0,
			(SELECT COUNT(*) FROM comment_likes l WHERE l.comment_id = c.id),
			0
		FROM comments c`
	}
	conn, err := st.site.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "USE "+database); err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	defer rows.Close()
	var list []oracle.Content
	for rows.Next() {
		var c oracle.Content
		if err := rows.Scan(&c.ID, &c.Parent, &c.Marker, &c.Likes, &c.Comments, &c.Rows, &c.CommentsIn); err != nil {
			return nil, fmt.Errorf("read %s: %w", kind, err)
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

func (st *storm) likes(ctx context.Context, kind string) (list []oracle.RegisterKey, err error) {
	item := strings.TrimSuffix(kind, "s")
	rows, err := st.site.db.QueryContext(ctx,
		fmt.Sprintf("SELECT %[1]s_id, user_id FROM %[2]s.%[1]s_likes", item, database))
	if err != nil {
		return nil, fmt.Errorf("read likes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, user int64
		if err := rows.Scan(&id, &user); err != nil {
			return nil, fmt.Errorf("read likes: %w", err)
		}
		list = append(list, oracle.RegisterKey{Target: st.know(kind, id), User: user})
	}
	return list, rows.Err()
}

// viewers is the number of users whose views of all content are read at the end. Reading the views of all users would
// take longer than the storm. All likes are compared with MySQL.
const viewers = 64

// judgeAPI compares the API with MySQL: all counts, and the likes of some users. It alternates between the two APIs.
func (st *storm) judgeAPI(ctx context.Context, j *oracle.Judge, rec *record, there map[oracle.RegisterKey]bool) error {
	counts := map[*oracle.Target]int64{}
	for key := range there {
		counts[key.Target]++
	}
	users := map[int64]*oracle.Account{}
	for _, r := range rec.registers {
		if r.User.Outcast {
			continue
		}
		if len(users) < viewers || users[r.User.ID] != nil {
			users[r.User.ID] = r.User
		}
	}
	lists := []struct{ kind, path string }{{"posts", "/v1/posts?limit=100"}}
	for _, t := range st.targets.discussed {
		if t.Gone.May(st.site.since()) {
			continue // its comments are deleted with it
		}
		lists = append(lists, struct{ kind, path string }{"comments", t.Path() + "/comments?limit=100"})
	}
	todo := make(chan func() error)
	errs := make(chan error, 8)
	var readers sync.WaitGroup
	for range cap(errs) {
		readers.Go(func() {
			for do := range todo {
				if err := do(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	api := 0
	var failure error
queue:
	for _, u := range users {
		for _, l := range lists {
			api = 1 - api
			by := route{api, patientLimit}
			select {
			case todo <- func() error { return st.judgeList(ctx, j, by, u, l.kind, l.path, counts, there) }:
			case failure = <-errs:
				break queue
			}
		}
	}
	close(todo)
	readers.Wait()
	if failure != nil {
		return failure
	}
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// judgeList reads a whole list as the user sees it.
func (st *storm) judgeList(
	ctx context.Context, j *oracle.Judge, by route, u *oracle.Account, kind, path string,
	counts map[*oracle.Target]int64, there map[oracle.RegisterKey]bool,
) error {
	met := 0
	for cursor := ""; ; {
		var page struct {
			Items      []seen  `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}
		if err := st.mustRead(ctx, by, u, path+cursor, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			met++
			if item.Status == "deleted" {
				continue // a placeholder
			}
			t := st.known(kind, item.ID)
			if t == nil {
				t = st.know(kind, item.ID) // its creation had an unknown outcome, so no client has liked it
			}
			j.View(oracle.View{
				Target: t, User: u.ID, API: by.api, Count: item.LikesCount, Liked: item.Liked,
			}, counts, there)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if met == 0 {
		st.violations.Addf("an empty list", st.site.since(), "GET %s", path)
	}
	return nil
}

// mustRead reads from the site, which must have recovered from all faults.
func (st *storm) mustRead(ctx context.Context, by route, u *oracle.Account, path string, out any) error {
	a := st.eventually(ctx, by, request{as: u, method: http.MethodGet, path: path})
	if a.outcome == oracle.OK {
		return json.Unmarshal(a.body, out)
	}
	return fmt.Errorf("GET %s answers %d %s", path, a.status, a.body)
}

// watch compares counts with rows in MySQL throughout the storm, because they must be equal at every commit. It ignores
// errors of the server.
func (st *storm) watch(ctx context.Context) {
	for wait(ctx, 2*time.Second) == nil {
		for _, item := range []string{"post", "comment"} {
			st.watchCounts(ctx, item)
		}
		st.watchStock(ctx, "during the storm")
	}
}

func (st *storm) watchCounts(ctx context.Context, item string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	suspects := st.ids(ctx, fmt.Sprintf(`
		SELECT t.id
		FROM %[2]s.%[1]ss t
		LEFT JOIN %[2]s.%[1]s_likes l ON l.%[1]s_id = t.id
		GROUP BY t.id, t.likes_count
		HAVING COUNT(l.id) <> t.likes_count`, item, database))
	for _, id := range suspects {
		var count, n int64
		err := st.locked(ctx, item+"s", id, fmt.Sprintf(`
			SELECT t.likes_count, (SELECT COUNT(*) FROM %[2]s.%[1]s_likes l WHERE l.%[1]s_id = t.id)
			FROM %[2]s.%[1]ss t
			WHERE t.id = ?`, item, database), &count, &n)
		if err == nil && count != n {
			st.violations.Addf(oracle.WrongLikesCount, st.site.since(),
				"during the storm: %s %d: likes_count %d, rows %d", item, id, count, n)
		}
	}
}

// ids reads ids, as many as the server returns before it is killed.
func (st *storm) ids(ctx context.Context, query string) (ids []int64) {
	rows, err := st.site.db.QueryContext(ctx, query)
	if err != nil {
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	_ = rows.Err() // the next call of watch tries again
	return ids
}

// locked reads one row about an id while its row in a table is locked. A statement without locks is not enough: on
// MariaDB, it can see a transaction without one that the transaction waited for.
func (st *storm) locked(ctx context.Context, table string, id int64, query string, into ...any) error {
	tx, err := st.site.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	row := tx.QueryRowContext(ctx, fmt.Sprintf(`
		SELECT t.id
		FROM %[1]s.%[2]s t
		WHERE t.id = ?
		FOR UPDATE`, database, table), id)
	if err := row.Scan(new(int64)); err != nil {
		return fmt.Errorf("lock %s %d: %w", table, id, err)
	}
	if err := tx.QueryRowContext(ctx, query, id).Scan(into...); err != nil {
		return fmt.Errorf("read %s %d: %w", table, id, err)
	}
	return nil
}

// collapse matches output that no process may print.
var collapse = regexp.MustCompile(`WARNING: DATA RACE|panic:|fatal error:|msg=panic`)

// judgeLogs looks for crashes of the product.
func (st *storm) judgeLogs() error {
	logs, err := filepath.Glob(filepath.Join(st.site.dir, "logs", "*.log"))
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if i := collapse.FindIndex(text); i != nil {
			st.violations.Addf("a crash", st.site.since(), "%s: %s", filepath.Base(path),
				text[i[0]:min(len(text), i[0]+3000)])
		}
	}
	return nil
}

func tail(s string, limit int) string {
	if len(s) > limit {
		return "…" + s[len(s)-limit:]
	}
	return s
}
