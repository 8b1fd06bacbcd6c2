package content

import (
	"context"
	"fmt"
	"html"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/search"
)

// sentences cuts the files below some folders into English and Chinese sentences.
func sentences(b *testing.B, folders string) (english, chinese []string) {
	b.Helper()
	markup, ends := regexp.MustCompile(`<[^>]*>`), regexp.MustCompile(`[.!?。！？\n]+`)
	for _, folder := range filepath.SplitList(folders) {
		err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			bodies := markup.ReplaceAllStringFunc(string(raw), func(row string) string { // of a dump
				_, body, _ := strings.Cut(row, ` Body="`)
				return body
			})
			text := markup.ReplaceAllString(html.UnescapeString(bodies), " ")
			for _, s := range ends.Split(text, -1) {
				words := len(strings.Fields(s))
				switch {
				case strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) }):
					chinese = append(chinese, strings.TrimSpace(s))
				case words > 4 && words < 60:
					english = append(english, strings.TrimSpace(s))
				}
			}
			return err
		})
		require.NoError(b, err)
	}
	if len(chinese) == 0 {
		chinese = []string{"用户可以发帖", "点赞帖子", "给帖子发表评论", "数据库表设计与缓存",
			"高并发场景实践"}
	}
	return english, chinese
}

// BenchmarkSearch compares the search index with the FULLTEXT index of the server: size, the cost of writing a post,
// and the cost of searches. LIKEWISE_SEARCH_TEXTS names folders with texts for the posts, LIKEWISE_SEARCH_POSTS is the
// number of posts. A quarter of the posts is Chinese if the texts are.
//
//	go test ./models -run '^$' -bench Search -benchtime 1x
func BenchmarkSearch(b *testing.B) {
	ctx := context.Background()
	folders, size := os.Getenv("LIKEWISE_SEARCH_TEXTS"), 5000
	if folders == "" {
		folders = "../../cmd/likewise/stackexchange/testdata"
	}
	if n, err := strconv.Atoi(os.Getenv("LIKEWISE_SEARCH_POSTS")); err == nil {
		size = n
	}
	english, chinese := sentences(b, folders)
	b.Logf("%d English and %d Chinese sentences", len(english), len(chinese))
	r := rand.New(rand.NewPCG(1, 2))
	text := func() models.PostText {
		from := english
		if r.IntN(4) == 0 {
			from = chinese
		}
		parts := make([]string, 3+r.IntN(6))
		for i := range parts {
			parts[i] = from[r.IntN(len(from))]
		}
		title := []rune(parts[0])
		return models.PostText{Title: string(title[:min(len(title), 60)]), Content: strings.Join(parts, ". ")}
	}

	config, err := mysql.ParseDSN(testkit.Database(b))
	require.NoError(b, err)
	config.ReadTimeout = time.Hour // building a FULLTEXT index takes long
	s, err := db.Open(ctx, config.FormatDSN(), db.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { s.Close() })
	run := func(query string, args ...any) {
		b.Helper()
		_, err := s.Pool().ExecContext(ctx, query, args...)
		require.NoError(b, err, query)
	}
	var version, name string
	require.NoError(b, s.Pool().QueryRowContext(ctx, "SELECT VERSION(), DATABASE()").Scan(&version, &name))
	parser, spaces := " WITH PARSER ngram", "INNODB_TABLESPACES"
	if strings.Contains(version, "MariaDB") {
		parser, spaces = "", "INNODB_SYS_TABLESPACES"
	}
	author := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(b, accounts.New(s).CreateUser(ctx, author))

	// Both indexes are filled in their own order, unlike those of a growing site, and then written to in the order of
	// posts.
	run(`
		CREATE TABLE unsorted (
			post_id BIGINT NOT NULL,
			term VARCHAR(32) COLLATE utf8mb4_bin NOT NULL,
			weight SMALLINT NOT NULL
		)`)
	var posts, terms []string
	var postArgs, termArgs []any
	rows := 0
	flush := func() {
		run(
			"INSERT INTO posts (id, user_id, title, content, terms_version) VALUES "+strings.Join(posts, ","),
			postArgs...)
		for len(terms) > 0 {
			n := min(len(terms), 5000)
			run("INSERT INTO unsorted (post_id, term, weight) VALUES "+strings.Join(terms[:n], ","), termArgs[:n]...)
			terms, termArgs = terms[n:], termArgs[n:]
		}
		posts, postArgs, terms, termArgs = nil, nil, nil, nil
	}
	for id := 1; id <= size; id++ {
		t := text()
		posts = append(posts, fmt.Sprintf("(%d,%d,?,?,%d)", id, author.ID, search.Version))
		postArgs = append(postArgs, t.Title, t.Content)
		weights := search.Weights(t.Title, t.Content)
		for term, weight := range weights {
			terms, termArgs = append(terms, fmt.Sprintf("(%d,?,%d)", id, weight)), append(termArgs, term)
		}
		rows += len(weights)
		if id%500 == 0 || id == size {
			flush()
		}
	}
	run(`
		INSERT INTO post_terms (post_id, term, weight)
		SELECT post_id, term, weight
		FROM unsorted
		ORDER BY term, post_id`)
	run("DROP TABLE unsorted")
	run(`
		CREATE TABLE full_texts (
			id BIGINT PRIMARY KEY AUTO_INCREMENT,
			title VARCHAR(200) NOT NULL,
			content TEXT NOT NULL
		)`)
	run("INSERT INTO full_texts SELECT id, title, content FROM posts")
	run("CREATE TABLE no_index LIKE full_texts")
	run("ALTER TABLE full_texts ADD FULLTEXT KEY words (title, content)" + parser)
	run("ANALYZE TABLE posts, post_terms, full_texts")
	fileSize := func(pattern string) (mb float64) {
		query := `
			SELECT COALESCE(SUM(FILE_SIZE), 0)/1048576
			FROM information_schema.` + spaces + `
			WHERE NAME LIKE ?`
		require.NoError(b, s.Pool().QueryRowContext(ctx, query, name+"/"+pattern).Scan(&mb))
		return mb
	}
	b.Logf("%s, %d posts, %d terms: the texts take %.0f MB, post_terms %.0f MB, FULLTEXT%s %.0f MB",
		version, size, rows, fileSize("full\\_texts"), fileSize("post\\_terms"), parser, fileSize("fts\\_%"))

	median := func(n int, f func()) time.Duration {
		var took []time.Duration
		for range n {
			started := time.Now()
			f()
			took = append(took, time.Since(started))
		}
		slices.Sort(took)
		return took[n/2]
	}
	write := func(table string) func() {
		return func() {
			t := text()
			run("INSERT INTO "+table+" (title, content) VALUES (?,?)", t.Title, t.Content)
		}
	}
	plain := median(300, write("no_index"))
	full := median(300, write("full_texts"))
	ours := median(300, func() {
		_, err := New(s).CreatePost(ctx, models.Author{ID: author.ID}, text())
		require.NoError(b, err)
	})
	b.Logf("writing a post: no index %v, FULLTEXT %v, whole CreatePost %v", plain, full, ours)

	for _, q := range []string{
		"quantum", "decoherence", "quantum computer error", "the state of the qubit", "数据库", "并发", "点赞 缓存", "库",
	} {
		found, fullFound := 0, 0
		query := PostQuery{Sort: models.PostsRelevance, Terms: search.QueryTerms(q), Limit: 21}
		mine := median(21, func() {
			page, err := New(s).ListPosts(ctx, query)
			require.NoError(b, err)
			found = len(page.Posts)
		})
		words := ""
		for _, word := range strings.Fields(q) {
			words += ` +"` + word + `"`
		}
		theirs := median(21, func() {
			var list []struct{ Title, Content string }
			const query = `
				SELECT id, MATCH (title, content) AGAINST (? IN BOOLEAN MODE) AS score, title, content
				FROM full_texts
				WHERE MATCH (title, content) AGAINST (? IN BOOLEAN MODE)
				ORDER BY score DESC, id DESC
				LIMIT 21`
			require.NoError(b, s.Read(ctx).Raw(query, words, words).Scan(&list).Error)
			fullFound = len(list)
		})
		b.Logf("search %q: %v for %d, FULLTEXT %v for %d", q, mine, found, theirs, fullFound)
	}
	b.ReportMetric(0, "ns/op") // the figures are in the log
}
