package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/sethvargo/go-retry"
	"golang.org/x/sys/unix"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/search"
	"likewise/workers"
)

// site is a site with its users.
type site struct {
	dsn   string
	store *db.DB

	// These are nil in direct mode.
	redis  *counters.Redis
	gate   *counters.Likes
	claims *counters.Claims

	author    models.Author
	accounts  int64    // that were created
	customers []int64  // ids of the accounts that do more than one thing
	tokens    []string // of the first accounts, which like again and again
}

// openSite opens a site with a new database.
func openSite(ctx context.Context, server *servers.MySQL, database string) (s *site, err error) {
	quiet := slog.New(slog.DiscardHandler)
	s = &site{}
	if s.dsn, err = server.Migrate(ctx, database); err != nil {
		return nil, err
	}
	s.store, err = db.Open(ctx, s.dsn, db.Options{MaxConns: 32, Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := s.store.Pool().ExecContext(ctx, "SET GLOBAL local_infile=1"); err != nil {
		return nil, errors.Join(fmt.Errorf("allow LOAD DATA: %w", err), s.close())
	}
	return s, nil
}

// openGate makes the site a gated one.
func (s *site) openGate(ctx context.Context, url string) (err error) {
	if s.redis, err = counters.Open(url, s.store.Shards()); err != nil {
		return err
	}
	s.redis.UseSite(s.store.Site())
	s.store.UseLikeClock(s.redis.Clock)
	s.gate = counters.NewLikes(s.redis, s.store, counters.LikesOptions{Logger: s.store.Logger()})
	s.claims = counters.NewClaims(s.redis, s.store, counters.ClaimsOptions{Logger: s.store.Logger()})
	return s.store.StartLikes(ctx, models.LikesGated)
}

// awaitOpen waits until every shard accepts likes.
func (s *site) awaitOpen(ctx context.Context) error {
	poll := retry.WithMaxDuration(30*time.Second, retry.NewConstant(10*time.Millisecond))
	return retry.Do(ctx, poll, func(ctx context.Context) error {
		infos, err := s.redis.ShardInfos(ctx)
		if slices.ContainsFunc(infos, func(info counters.ShardInfo) bool { return !info.Open }) {
			err = errors.New("some shards are closed")
		}
		return retry.RetryableError(err)
	})
}

func (s *site) close() error {
	var err error
	if s.redis != nil {
		err = s.redis.Close()
	}
	return errors.Join(err, s.store.Close())
}

// firstAccount is the id of the first account, so high that Redis needs four bytes for an id, as on a site that has had
// many users.
const firstAccount = 1_000_000

// createUsers creates an author, and accounts of which the first have a token.
func (s *site) createUsers(ctx context.Context, members, tokens int) (err error) {
	author := &models.User{Username: "bench", Email: "bench@bench" + models.NoEmailDomain}
	if err := accounts.New(s.store).CreateUser(ctx, author); err != nil {
		return err
	}
	s.author = models.Author{ID: author.ID, Username: author.Username}
	if s.customers, err = s.createAccounts(ctx, members); err != nil {
		return err
	}
	s.tokens, err = accounts.New(s.store).CreateSessions(ctx, s.customers[:tokens])
	return err
}

// createAccounts creates accounts without a password, and returns their ids.
func (s *site) createAccounts(ctx context.Context, n int) (ids []int64, err error) {
	first := firstAccount + s.accounts
	s.accounts += int64(n)
	return ids, s.load(ctx, "users", "id, username, email, password_hash", n, func(w io.Writer, i int) {
		id := first + int64(i)
		ids = append(ids, id)
		fmt.Fprintf(w, "%d\tcustomer-%d\tcustomer-%d@bench%s\t\n", id, id, id, models.NoEmailDomain)
	})
}

// newcomers returns the tokens of new accounts.
func (s *site) newcomers(ctx context.Context, n int) ([]string, error) {
	ids, err := s.createAccounts(ctx, n)
	if err != nil {
		return nil, err
	}
	return accounts.New(s.store).CreateSessions(ctx, ids)
}

// rowsAtOnce is the number of rows of a statement that loads, which must end within the client's timeout.
const rowsAtOnce = 20_000

// load fills a table with LOAD DATA: n rows, each a line of values separated by tabs.
func (s *site) load(ctx context.Context, table, columns string, n int, row func(w io.Writer, i int)) error {
	const name = "bench"
	for start := 0; start < n; start += rowsAtOnce {
		var rows bytes.Buffer
		for i := start; i < min(start+rowsAtOnce, n); i++ {
			row(&rows, i)
		}
		mysql.RegisterReaderHandler(name, func() io.Reader { return &rows })
		query := "LOAD DATA LOCAL INFILE 'Reader::" + name + "' INTO TABLE " + table + " (" + columns + ")"
		_, err := s.store.Pool().ExecContext(ctx, query)
		mysql.DeregisterReaderHandler(name)
		if err != nil {
			return fmt.Errorf("fill %s: %w", table, err)
		}
	}
	return nil
}

// loadPosts writes posts with some likes each, as if they had been liked long ago: Redis knows none of them. The likers
// of the i-th post are the accounts after the i-th. It returns the id of the first post; the others follow.
func (s *site) loadPosts(ctx context.Context, posts, likes int) (first int64, err error) {
	const next = "SELECT COALESCE(MAX(id), 0)+1 FROM posts" // nothing else creates posts meanwhile
	if err := s.store.Pool().QueryRowContext(ctx, next).Scan(&first); err != nil {
		return 0, fmt.Errorf("read the last post: %w", err)
	}
	at := time.Now().UTC().Truncate(time.Second)
	when := at.Format(time.DateTime)
	columns := "id, user_id, title, content, likes_count, milestone, created_at, updated_at, active_at, hot_score, " +
		"terms_version"
	err = s.load(ctx, "posts", columns, posts, func(w io.Writer, i int) {
		const text = "A title\tA post with some words of text, as many as a short one has."
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%d\t%d\n", first+int64(i), s.author.ID, text, likes,
			milestone(likes), when, when, when, models.HotScore(at, int64(likes)), search.Version)
	})
	if err != nil {
		return 0, err
	}
	return first, s.load(ctx, "post_likes", "post_id, user_id, created_at", posts*likes, func(w io.Writer, i int) {
		post, n := i/likes, i%likes
		user := s.customers[(post+1+n)%len(s.customers)]
		fmt.Fprintf(w, "%d\t%d\t%s\n", first+int64(post), user, when)
	})
}

// milestone returns the highest power of ten that is at most likes.
func milestone(likes int) int {
	m := 0
	for power := 1; power <= likes; power *= 10 {
		m = power
	}
	return m
}

func (s *site) createPost(ctx context.Context) (models.Target, error) {
	post, err := content.New(s.store).CreatePost(ctx, s.author, models.PostText{Title: "A hot post",
		Content: "with text"})
	if err != nil {
		return models.Target{}, err
	}
	return models.Target{Kind: models.KindPost, ID: post.ID}, nil
}

// createThread creates a post with 100 comments: 20, each with 4 replies.
func (s *site) createThread(ctx context.Context) (post models.Target, err error) {
	const tops, replies = 20, 4
	if post, err = s.createPost(ctx); err != nil {
		return post, err
	}
	const insert = `
		INSERT INTO comments (post_id, user_id, parent_id, depth, replies_count, content)
		VALUES (?,?,?,?,?,'A comment with some words.')`
	pool := s.store.Pool()
	for range tops {
		top, err := pool.ExecContext(ctx, insert, post.ID, s.author.ID, nil, 1, replies)
		if err != nil {
			return post, fmt.Errorf("create comment: %w", err)
		}
		id, _ := top.LastInsertId() // comments have one
		for range replies {
			if _, err := pool.ExecContext(ctx, insert, post.ID, s.author.ID, id, 2, 0); err != nil {
				return post, fmt.Errorf("create reply: %w", err)
			}
		}
	}
	const count = `
		UPDATE posts
		SET comments_count=?, updated_at=updated_at
		WHERE id=?`
	if _, err := pool.ExecContext(ctx, count, tops*(1+replies), post.ID); err != nil {
		return post, fmt.Errorf("count comments: %w", err)
	}
	return post, nil
}

// checkLikes returns an error unless the posts from first to last have so many likes, by their rows and by their
// counts. If want is negative, it compares rows and counts alone.
func (s *site) checkLikes(ctx context.Context, first, last, want int64) error {
	const query = `
		SELECT (SELECT COUNT(*) FROM post_likes WHERE post_id BETWEEN ? AND ?),
			(SELECT COALESCE(SUM(likes_count), 0) FROM posts WHERE id BETWEEN ? AND ?)`
	var rows, counted int64
	if err := s.store.Pool().QueryRowContext(ctx, query, first, last, first, last).Scan(&rows, &counted); err != nil {
		return fmt.Errorf("count likes: %w", err)
	}
	if want < 0 {
		want = rows
	}
	if rows != want || counted != want {
		return fmt.Errorf("the posts from %d to %d should have %d likes: %d have a row, and %d are counted",
			first, last, want, rows, counted)
	}
	return nil
}

// cool makes posts cold whose likes are all in MySQL.
func (s *site) cool(ctx context.Context, posts []int64) error {
	watermarks, err := likes.New(s.store).Watermarks(ctx)
	if err != nil {
		return err
	}
	targets := make([]models.Target, len(posts))
	chosen := map[models.Target]bool{}
	for i, id := range posts {
		targets[i] = models.Target{Kind: models.KindPost, ID: id}
		chosen[targets[i]] = true
	}
	if _, err := s.redis.Cool(ctx, targets, 0, watermarks); err != nil {
		return err
	}
	return s.redis.EachWarm(ctx, func(warm []models.Target) error {
		for _, t := range warm {
			if chosen[t] {
				return fmt.Errorf("%s is still warm", t)
			}
		}
		return nil
	})
}

// useMemory grants InnoDB a quarter of the machine's memory for pages, at most 4 GB, as the server of a large site has.
func (s *site) useMemory(ctx context.Context) error {
	const chunk = 128 << 20 // of which the size is a multiple
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("read the size of the memory: %w", err)
	}
	quarter := info.Totalram * uint64(info.Unit) / 4
	pages := max(1, min(quarter, 4<<30)/chunk) * chunk
	if _, err := s.store.Pool().ExecContext(ctx, "SET GLOBAL innodb_buffer_pool_size=?", pages); err != nil {
		return fmt.Errorf("set the memory of InnoDB: %w", err)
	}
	return nil
}

// queries returns the number of statements that clients have sent to the MySQL server.
func (s *site) queries(ctx context.Context) (n int64, err error) {
	var name string
	if err := s.store.Pool().QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		return 0, fmt.Errorf("count queries: %w", err)
	}
	return n, nil
}

// verify compares rows, counts and Redis for everything on the gated site, as the command verify does.
func (b *bench) verify(ctx context.Context) error {
	if err := b.settle(ctx); err != nil {
		return err
	}
	var found []string
	sum, err := workers.NewVerifier(b.gated.store, b.gated.redis, b.gated.gate, false, func(d models.Difference) {
		found = append(found, d.String())
	}).Verify(ctx)
	if err != nil {
		return err
	}
	if sum.Differences > 0 || sum.Undecided > 0 {
		return fmt.Errorf("%d differences: %.1000s", sum.Differences, strings.Join(found, "; "))
	}
	b.log.InfoContext(ctx, "bench verified", "posts", sum.Posts, "likes", sum.Likes, "in_redis", sum.Warm,
		"drops", sum.Drops, "claims", sum.Claims)
	return nil
}
