package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
)

func TestSettings_thatAreMissingAreNamedAsFlagAndVariable(t *testing.T) {
	t.Parallel()
	const (
		dsn   = "--mysql-dsn (or $LIKEWISE_MYSQL_DSN)"
		redis = "--redis (or $LIKEWISE_REDIS)"
		kafka = "--kafka (or $LIKEWISE_KAFKA)"
	)
	for args, missing := range map[string][]string{
		"api":                              {dsn, redis},
		"api --likes=direct":               {dsn},
		"worker":                           {dsn, redis, kafka},
		"cron":                             {dsn, redis, kafka},
		"cron run flush":                   {dsn, redis, kafka},
		"cron run purge --likes=direct":    {dsn},
		"migrate up":                       {dsn},
		"migrate status":                   {dsn},
		"migrate restored":                 {dsn},
		"import stackexchange .":           {dsn, redis},
		"user create ada ada@example.org":  {dsn},
		"user promote ada admin":           {dsn},
		"user token ada":                   {dsn},
		"user delete ada --reason=x":       {dsn},
		"verify":                           {dsn, redis},
		"verify --likes=direct":            {dsn},
		"worker --mysql-dsn=u:p@tcp(h)/db": {redis, kafka},
	} {
		said := fail(t, 2, nil, strings.Fields(args)...)
		for _, name := range []string{dsn, redis, kafka} {
			want := false
			for _, m := range missing {
				want = want || m == name
			}
			assert.Equal(t, want, strings.Contains(said, name), "likewise %s says %s about %s", args, said, name)
		}
	}
}

func TestProgram_saysWhatItIs(t *testing.T) {
	t.Parallel()
	help := succeed(t, nil)
	assert.Contains(t, help, "Commands:")
	assert.Equal(t, help, succeed(t, nil, "--help"))
	assert.Regexp(t, `^likewise \S+ \(.*go1\.\S+ \w+/\w+\)\n$`, succeed(t, nil, "--version"))
	assert.Contains(t, fail(t, 2, nil, "nonsense"), "unexpected argument nonsense")
	said := succeed(t, nil, "user", "create", "--help")
	assert.Regexp(t, `(?m)^Usage: .* NAME EMAIL \[flags\]$`, said)
	assert.Regexp(t, `(?m)^  NAME       Username\.\n  EMAIL      E-mail address\.$`, said, "columns are aligned")
	assert.NotRegexp(t, `<[a-z]`, said+help)
	said = fail(t, 2, []string{"LIKEWISE_MYSQL_DSN=u:of-nobody@tcp(127.0.0.1:1)/likewise"}, "user", "create")
	assert.Contains(t, said, "NAME")
	assert.NotRegexp(t, `<[a-z]`, said)
}

func TestSettings_originsAreChecked(t *testing.T) {
	t.Parallel()
	said := fail(t, 2, nil, "api", "--cors-origins=forum.example")
	assert.Contains(t, said, "--cors-origins (or $LIKEWISE_CORS_ORIGINS): origin ")
	said = fail(t, 2, []string{"LIKEWISE_CORS_ORIGINS=https://forum.example/"}, "api")
	assert.Contains(t, said, "--cors-origins (or $LIKEWISE_CORS_ORIGINS): origin ")
}

// A command does not start with a flag that it does not have, such as one of an earlier version.
func TestSettings_unknownFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for flag, command := range map[string][]string{
		"--group": {"worker"}, "--replicas": {"cron"}, "--max-streams": {"api"}, "--max-in-flight": {"api"},
		"--like-limit": {"api"}, "--profiles": {"api"}, "--again": {"import", "stackexchange", "."},
	} {
		assert.Contains(t, fail(t, 2, nil, append(command, flag)...), "likewise: unknown flag "+flag)
	}
}

func TestSettings_imagesAreCheckedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"api"}, {"cron"}} {
		said := fail(t, 2, []string{"LIKEWISE_IMAGES=s3://key:hidden@host"}, args...)
		assert.Contains(t, said, "--images (or $LIKEWISE_IMAGES) is not of the form /folder, or s3://")
		assert.NotContains(t, said, "hidden")
	}
}

func TestSettings_areNeverShownWhenTheyAreWrong(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery"
	for _, dsn := range []string{
		"likewise:" + secret + "/likewise",
		"mysql://likewise:" + secret + "@127.0.0.1:3306/likewise",
		"likewise:" + secret + "@tcp(127.0.0.1:3306",
		"likewise:" + secret + "@tcp(127.0.0.1:3306)/",
	} {
		said := fail(t, 2, []string{"LIKEWISE_MYSQL_DSN=" + dsn}, "verify", "--likes=direct")
		assert.Contains(t, said, "$LIKEWISE_MYSQL_DSN) is not of the form USER:PASSWORD@tcp(HOST:3306)/DATABASE")
		assert.NotContains(t, said, secret)
	}
	for _, url := range []string{
		"redis://:" + secret + "@localhost:port/0",
		"http://:" + secret + "@localhost",
		secret,
	} {
		said := fail(
			t,
			2,
			[]string{"LIKEWISE_MYSQL_DSN=u:p@tcp(127.0.0.1:1)/likewise", "LIKEWISE_REDIS=" + url},
			"verify",
		)
		assert.Contains(t, said, "$LIKEWISE_REDIS) is not of the form redis://HOST:6379/0")
		assert.NotContains(t, said, secret)
	}
	// Well-formed settings that do not work: no server, a wrong password, or a missing database.
	c, err := mysql.ParseDSN(testkit.Database(t))
	require.NoError(t, err)
	for _, change := range []func(*mysql.Config){
		func(c *mysql.Config) { c.Addr = "127.0.0.1:1" },
		func(c *mysql.Config) { c.Passwd = secret },
		func(c *mysql.Config) { c.DBName = "nowhere" },
	} {
		wrong := c.Clone()
		change(wrong)
		for _, args := range []string{"api --likes=direct", "migrate up", "user token ada"} {
			said := fail(t, 1, []string{"LIKEWISE_MYSQL_DSN=" + wrong.FormatDSN()}, strings.Fields(args)...)
			assert.NotContains(t, said, secret)
			assert.NotContains(t, said, wrong.Passwd)
			assert.NotEmpty(t, said)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	c, err := mysql.ParseDSN(testkit.Database(t))
	require.NoError(t, err)
	db, err := sql.Open("mysql", c.FormatDSN())
	require.NoError(t, err)
	defer db.Close()
	c.DBName += "_empty"
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+c.DBName)
	require.NoError(t, err)
	defer func() {
		_, err := db.Exec("DROP DATABASE " + c.DBName)
		require.NoError(t, err)
	}()
	env := []string{"LIKEWISE_MYSQL_DSN=" + c.FormatDSN()}

	for _, args := range []string{"api --likes=direct", "verify --likes=direct", "user token --count 1"} {
		assert.Contains(t, fail(t, 1, env, strings.Fields(args)...), "run `likewise migrate up`", "likewise %s", args)
	}
	assert.Regexp(t, `(?m)^00001_users\.sql +pending$`, succeed(t, env, "migrate", "status"))
	said := succeed(t, env, "migrate", "up")
	assert.Regexp(t, `(?m)^00001_users\.sql +applied in \d+(\.\d+)?m?s$`, said)
	assert.True(t, strings.HasSuffix(said, "\nthe schema is up to date\n"), said)
	assert.Equal(t, "the schema is up to date\n", succeed(t, env, "migrate", "up"))
	status := succeed(t, env, "migrate", "status")
	assert.Regexp(t, `(?m)^00001_users\.sql +2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, status)
	assert.NotContains(t, status, "pending")
	succeed(t, env, "migrate", "up")
	succeed(t, env, "migrate", "up", "--shards", "16")
	said = fail(t, 1, env, "migrate", "up", "--shards", "8")
	assert.Contains(t, said, "the number of shards is fixed at install: this database has 16, not 8")
	fail(t, 1, env, "migrate", "up", "--shards", "1000")
}

func TestUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, url := s.api("--likes=direct")

	out := s.succeed("user", "create", "ada", "ada@example.org", "--role", "admin")
	match := regexp.MustCompile(`^user_id\t(\d+)\npassword\t(\S+)\n$`).FindStringSubmatch(out)
	require.NotNil(t, match, out)
	var session struct {
		User  struct{ Role string }
		Token string
	}
	call(
		t,
		url,
		account{},
		"POST",
		"/v1/auth/login",
		obj{"login": "ada", "password": match[2]},
		http.StatusOK,
		&session,
	)
	assert.Equal(t, "admin", session.User.Role)

	create := func(input string, args ...string) result {
		cmd := exec.Command(testBinary(), append([]string{"user", "create"}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		p := startCommand(t, s.env, cmd)
		return result{p.await(), p.stdout.String(), p.stderr.String()}
	}
	// A new password ends what the old one opened.
	set := func(input string, args ...string) result {
		cmd := exec.Command(testBinary(), append([]string{"user", "password"}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		p := startCommand(t, s.env, cmd)
		return result{p.await(), p.stdout.String(), p.stderr.String()}
	}
	changed := set("another password of hers\n", "ada")
	require.Zero(t, changed.status, changed.stderr)
	assert.Equal(t, "ada has a new password. Ended sessions and API tokens: 1.\n", changed.stdout)
	login := func(password string, status int) {
		t.Helper()
		call(t, url, account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": password}, status, nil)
	}
	login(match[2], http.StatusUnauthorized)
	login("another password of hers", http.StatusOK)
	assert.Equal(t, 1, s.count(`
		SELECT COUNT(*)
		FROM security_log l
		JOIN users u ON u.id=l.user_id
		WHERE l.kind='password.changed' AND l.actor_id IS NULL AND l.address='' AND u.username='ada'`))
	assert.Equal(t, 1, set("short\n", "ada").status)
	assert.Equal(t, 1, set("", "ada").status)
	assert.Contains(t, set("another password of hers\n", "nobody").stderr, "no such user")
	login("another password of hers", http.StatusOK)

	piped := create("a password of mine\n", "bob", "bob@example.org", "--password-stdin")
	require.Zero(t, piped.status, piped.stderr)
	assert.NotContains(t, piped.stdout+piped.stderr, "a password of mine")
	call(
		t,
		url,
		account{},
		"POST",
		"/v1/auth/login",
		obj{"login": "bob@example.org", "password": "a password of mine"},
		http.StatusOK,
		nil,
	)
	assert.Equal(t, 1, create("short\n", "carl", "carl@example.org", "--password-stdin").status)
	assert.Equal(t, 1, create("", "carl", "carl@example.org", "--password-stdin").status)

	for args, want := range map[string]string{
		"user create Ada new@example.org": "username",
		"user create eve ada@example.org": "email",
		"user create e eve@example.org":   "username",
		"user create eve nonsense":        "email",
		"user promote nobody admin":       "no such user",
		"user token nobody":               "no such user",
		"user delete nobody --reason=x":   "no such user",
		"user delete bob --reason=x":      "not banned",
		"user token":                      "--count",
		"user token ada --count 5":        "--count",
		"user token --count=-1":           "--count",
	} {
		assert.Contains(t, fail(t, 1, s.env, strings.Fields(args)...), want, "likewise %s", args)
	}
	fail(t, 2, s.env, "user", "create", "eve", "eve@example.org", "--role", "queen")
	fail(t, 2, s.env, "user", "promote", "bob", "queen")
	assert.Equal(t, 2, s.count("SELECT COUNT(*) FROM users"), "what was refused left nothing")

	assert.Equal(t, "bob now has the role moderator.\n", s.succeed("user", "promote", "bob", "moderator"))
	assert.Equal(t, 1, s.count(`
		SELECT COUNT(*)
		FROM moderation_log
		WHERE actor_id=0 AND action='user.role'
			AND before_state='{"role":"user"}' AND after_state='{"role":"moderator"}'`))
	as := readTokens(t, s.succeed("user", "token", "bob@example.org"), 1)[0]
	var me struct {
		ID             int64
		Username, Role string
	}
	call(t, url, as, "GET", "/v1/me", nil, http.StatusOK, &me)
	assert.Equal(t, as.id, me.ID)
	assert.Equal(t, "bob", me.Username)
	assert.Equal(t, "moderator", me.Role)

	assert.Equal(t, 4, s.count(`
		SELECT COUNT(*)
		FROM security_log
		WHERE actor_id IS NULL AND address='' AND (kind='account.created' OR
			user_id=? AND (kind='session.created' OR kind='role.changed' AND detail='user to moderator'))`,
		as.id), "the security log has the operator's actions")

	s.exec("UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.' WHERE username='bob'")
	fail(t, 2, s.env, "user", "delete", "bob")
	assert.Equal(
		t,
		"bob is deleted, and banned permanently.\n",
		s.succeed("user", "delete", "bob@example.org", "--reason=Asked to go."),
	)
	assert.Equal(t, 1, s.count(`
		SELECT COUNT(*)
		FROM moderation_log
		WHERE actor_id=0 AND action='user.delete' AND target_id=? AND reason='Asked to go.'`, as.id))
	assert.Contains(t, fail(t, 1, s.env, "user", "create", "BOB", "new@example.org"), "username")
	assert.Contains(t, fail(t, 1, s.env, "user", "create", "robert", "bob@example.org"), "email")
	s.succeed("user", "create", "grace", "grace@example.org")

	ids := map[int64]bool{}
	for _, as := range append(s.accounts(5), s.accounts(3)...) {
		call(t, url, as, "GET", "/v1/me", nil, http.StatusOK, &me)
		assert.Equal(t, as.id, me.ID)
		ids[as.id] = true
	}
	assert.Len(t, ids, 5, "the same users the second time")
}

func TestCommandLine_refusesUnknownArguments(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"fly",
		"api --altitude=3",
		"cron run dance --likes=direct --mysql-dsn=u:p@tcp(h)/db",
		"api --likes=maybe --mysql-dsn=u:p@tcp(h)/db",
	} {
		said := fail(t, 2, nil, strings.Fields(args)...)
		assert.Regexp(t, "^likewise: .+", said)
	}
	for _, args := range []string{"", "--help", "cron --help", "cron run --help", "user token --help"} {
		assert.Contains(t, succeed(t, nil, strings.Fields(args)...), "Usage: likewise")
	}
}

func TestDirectMode_needsNeitherRedisNorKafka(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := []string{s.env[0]}
	p := start(t, direct, "api", "--likes=direct", "--log-format=json")
	url := "http://" + p.awaitPrint(regexp.MustCompile(`"msg":"api serves","address":"([^"]+)"`))
	users := readTokens(t, succeed(t, direct, "user", "token", "--count", "3"), 3)
	post := newPost(t, url, users[0])
	comment := newComment(t, url, users[1], post)
	for i, as := range users {
		assert.Equal(t, likeJSON{true, int64(i + 1)}, like(t, url, as, post.path(), true))
		assert.Equal(t, likeJSON{true, 1}, like(t, url, as, fmt.Sprintf("/v1/comments/%d", comment.ID), true))
		like(t, url, as, fmt.Sprintf("/v1/comments/%d", comment.ID), false)
	}
	assert.Equal(t, 3, s.count("SELECT likes_count FROM posts"))
	assert.Equal(t, 3, s.count("SELECT COUNT(*) FROM post_likes"))
	assert.Contains(
		t,
		succeed(t, direct, "verify", "--likes=direct"),
		"compared 1 posts and 1 comments with 3 likes, 0 of them with Redis: 0 differences",
	)
	assert.Contains(t, succeed(t, direct, "cron", "run", "purge", "--likes=direct"), "deleted 0 expired sessions")
	assert.Contains(t, fail(t, 1, direct, "cron", "run", "flush", "--likes=direct"),
		"every like and claim is in MySQL already")
	s.exec("UPDATE posts SET likes_count=7")
	r := finish(t, direct, "verify", "--likes=direct")
	assert.Equal(t, 1, r.status)
	assert.Contains(t, r.stdout, fmt.Sprintf("post:%d: likes_count is 7 and there are 3 rows", post.ID))
	p.stop()
	for _, line := range strings.Split(strings.TrimSuffix(p.stderr.String(), "\n"), "\n") {
		assert.True(t, json.Valid([]byte(line)), "a line of the log that is not JSON: %s", line)
	}
}

func TestRedis_thatMayEvictIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	evicting, err := servers.StartRedis(t.Context(), t.TempDir(), "--maxmemory-policy", "allkeys-lru")
	require.NoError(t, err)
	defer func() { require.NoError(t, evicting.Stop(t.Context())) }()
	env := slices.Concat(s.env, []string{"LIKEWISE_REDIS=" + evicting.URL()})
	for _, role := range []string{"api", "worker"} {
		assert.Contains(t, fail(t, 1, env, role), "maxmemory-policy is allkeys-lru; set noeviction")
	}
}
