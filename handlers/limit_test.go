package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/handlers/signin"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
)

// limited enables limits, counted on Redis, or in the process alone for "".
func limited(t *testing.T, redis string, factor float64) func(*handlers.Config) {
	t.Helper()
	// On a busy machine, Redis may be slow to answer. Limits that one process counts alone are not exact.
	return limitedAfter(t, redis, factor, time.Minute)
}

// limitedAfter is limited with a time after which the API no longer waits for Redis.
func limitedAfter(t *testing.T, redis string, factor float64, wait time.Duration) func(*handlers.Config) {
	t.Helper()
	limiter, err := counters.OpenLimiter(redis, wait, nil)
	require.NoError(t, err)
	t.Cleanup(func() { limiter.Close() })
	return func(c *handlers.Config) { c.Limiter, c.LimitFactor = limiter, factor }
}

func redisURL(t *testing.T) string {
	t.Helper()
	o := testkit.Redis(t)
	return fmt.Sprintf("redis://%s/%d", o.Addr, o.DB)
}

// behindProxy trusts the tests' own address as a proxy, so that a request can claim any address.
func behindProxy(c *handlers.Config) {
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

func comesFrom(address string) header { return header{"X-Forwarded-For", address} }

// grow makes an account old enough for the full quotas and sets its role.
func (a *api) grow(t *testing.T, as account, role models.Role) account {
	t.Helper()
	if _, err := a.store.Pool().Exec("UPDATE users SET created_at='2020-01-01', role=? WHERE id=?", role,
		as.ID); err != nil {
		t.Fatal(err)
	}
	return as
}

// until repeats a request until it is limited. It returns how often the request was answered with status before.
func (a *api) until(t *testing.T, status int, as account, method, path string, body any,
	headers ...header) (passed int, refused reply) {
	t.Helper()
	for ; passed < 2000; passed++ {
		r := a.send(t, as, method, path, body, headers...)
		switch r.Status {
		case 429:
			return passed, r
		case status:
		default:
			t.Fatalf("%s %s: %s, want %d or 429", method, path, r, status)
		}
	}
	t.Fatalf("%s %s is not limited", method, path)
	return 0, reply{}
}

func number(t *testing.T, pattern, s string) int {
	t.Helper()
	m := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(s)
	if m == nil {
		t.Fatalf("%q is not of the form %s", s, pattern)
	}
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func TestLimits_dependOnAgeAndRole(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	url := redisURL(t)
	a, other := serve(t, store, limited(t, url, 1)), serve(t, store, limited(t, url, 1))
	text := obj{"title": "T", "content": "C"}
	fresh := a.account(t)
	r := a.must(t, 201, fresh, "POST", "/v1/posts", text)
	if left := number(t, `"posts";r=(\d+);t=600`, r.Header.Get("RateLimit")); left != 2 {
		t.Errorf("%d posts are left, want 2", left)
	}
	if r.Header.Get("RateLimit-Policy") != `"posts";q=3;w=1800` {
		t.Errorf("RateLimit-Policy is %s", r.Header.Get("RateLimit-Policy"))
	}
	other.must(t, 201, fresh, "POST", "/v1/posts", text) // all processes count together
	a.must(t, 201, fresh, "POST", "/v1/posts", text)
	for _, at := range []*api{a, other} {
		_, r := at.refused(t, 429, "rate_limited", fresh, "POST", "/v1/posts", text)
		if wait := number(t, `(\d+)`, r.Header.Get("Retry-After")); wait < 580 || wait > 600 {
			t.Errorf("Retry-After is %d", wait)
		}
		if left := number(t, `"posts";r=(\d+);t=\d+`, r.Header.Get("RateLimit")); left != 0 {
			t.Errorf("%d are left", left)
		}
	}
	a.must(t, 200, fresh, "GET", "/v1/posts", nil) // reads are not limited
	for role, want := range map[models.Role]int{models.RoleUser: 10, models.RoleModerator: 100} {
		if passed, _ := a.until(t, 201, a.grow(t, a.account(t), role), "POST", "/v1/posts", text); passed != want &&
			role == models.RoleUser || passed < want {
			t.Errorf("a %s could write %d posts at once, want %d", role, passed, want)
		}
	}
	if n := a.number(t, "SELECT COUNT(*) FROM posts"); n < 113 {
		t.Errorf("%d posts", n)
	}
}

func TestLimits_countAnAddressWithAllItsAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 0.1), behindProxy) // ten posts at once from an address, one of an account
	text := obj{"title": "T", "content": "C"}
	for _, as := range a.accounts(t, 10) {
		a.must(t, 201, as, "POST", "/v1/posts", text, comesFrom("192.0.2.1"))
	}
	eleventh := a.account(t)
	_, r := a.refused(t, 429, "rate_limited", eleventh, "POST", "/v1/posts", text, comesFrom("192.0.2.1"))
	if !strings.HasPrefix(r.Header.Get("RateLimit"), `"posts-by-address";r=0;`) {
		t.Errorf("RateLimit is %s", r.Header.Get("RateLimit"))
	}
	// And it was not counted against the account.
	a.must(t, 201, eleventh, "POST", "/v1/posts", text, comesFrom("192.0.2.2"))
	moderator := a.grow(t, a.account(t), models.RoleModerator)
	a.must(t, 201, moderator, "POST", "/v1/posts", text, comesFrom("192.0.2.1"))
}

func TestLimits_areOfEveryKindOfAction(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 0.1), behindProxy)
	ada := a.account(t)
	p := a.newPost(t, ada)
	registration := func(i int) obj {
		return obj{"username": fmt.Sprint("new", i), "email": fmt.Sprintf("new%d@example.org", i),
			"password": "difference engine"}
	}
	for range 20 { // invalid requests cost nothing
		a.refused(t, 422, "invalid", account{}, "POST", "/v1/auth/register",
			obj{"username": "x", "email": "x", "password": "x"}, comesFrom("192.0.2.9"))
	}
	a.must(t, 201, account{}, "POST", "/v1/auth/register", registration(1), comesFrom("192.0.2.9"))
	a.refused(t, 429, "rate_limited", account{}, "POST", "/v1/auth/register", registration(2), comesFrom("192.0.2.9"))
	a.must(t, 201, account{}, "POST", "/v1/auth/register", registration(2), comesFrom("192.0.2.10"))
	for _, try := range []struct {
		status, want       int
		method, path, from string
		body               any
	}{
		{200, 50, "GET", "/v1/posts", "192.0.2.11", nil}, // a list costs two
		{404, 100, "GET", "/nope", "192.0.2.41", nil},
		{200, 100, "GET", "/docs/docs.js", "192.0.2.42", nil},
		{405, 100, "POST", "/docs", "192.0.2.44", nil},
		{200, 3, "GET", "/v1/posts?q=title", "192.0.2.13", nil},
		{200, 3, "HEAD", "/v1/posts?q=title", "192.0.2.23", nil},
		{200, 3, "GET", "/v1/users/1/posts?q=title", "192.0.2.33", nil},
		{201, 1, "POST", pathOf(p) + "/comments", "192.0.2.14", obj{"content": "C"}},
		{403, 1, "PUT", "/v1/me/password", "192.0.2.15",
			obj{"current_password": "a wrong one", "new_password": "difference engine"}},
		{200, 4, "PUT", "/v1/users/1/follow", "192.0.2.16", nil},
	} {
		if passed, _ := a.until(t, try.status, a.account(t), try.method, try.path, try.body,
			comesFrom(try.from)); passed < try.want || passed > try.want+20 {
			t.Errorf("%s %s: %d passed, want %d", try.method, try.path, passed, try.want)
		}
	}
	for range 200 {
		a.must(t, 200, account{}, "GET", "/healthz", nil, comesFrom("192.0.2.11")) // health checks are not counted
	}
}

// Reads are counted as requests alone, and every other route has a quota. Only health checks are not counted.
func TestLimits_areOfEveryRoute(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	served := map[string]bool{}
	for _, r := range a.Routes() {
		if r.Method != http.MethodHead {
			served[r.Method+" "+r.Path] = true
		}
	}
	limits := a.Limits()
	for route, limit := range limits {
		if !served[route] {
			t.Errorf("%s is not served", route)
		}
		want := handlers.RouteLimit{Read: true}
		switch {
		case route == "GET /healthz":
			want = handlers.RouteLimit{None: true}
		case route == "PUT /v1/streams/:id": // what is followed is read
		case !strings.HasPrefix(route, "GET "):
			want = handlers.RouteLimit{Counted: true}
		}
		if limit != want {
			t.Errorf("%s: the limit is %+v, want %+v", route, limit, want)
		}
	}
	if len(limits) != len(served) {
		t.Errorf("%d limits for %d routes", len(limits), len(served))
	}
}

func TestLimits_outliveRedis(t *testing.T) {
	redis, err := servers.StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, redis.Stop(context.Background()))
	})
	a := newAPI(t, modes[0], limitedAfter(t, redis.URL(), 1, counters.DefaultLimitWait))
	text := obj{"title": "T", "content": "C"}
	if err := redis.Pause(); err != nil { // takes commands and never answers
		t.Fatal(err)
	}
	start := time.Now()
	if passed, _ := a.until(t, 201, a.account(t), "POST", "/v1/posts", text); passed != 3 {
		t.Errorf("%d posts passed while Redis was silent, want 3", passed)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("a silent Redis held four requests up for %v", took)
	}
	require.NoError(t, redis.Resume())
}

func TestLogin_isThrottledAlikeForKnownAndUnknown(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, redisURL(t), 1), behindProxy)
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"}, comesFrom("192.0.2.1"))
	var seen []string
	var waits []int
	began := time.Now()
	for _, names := range [][]string{{"ada", "ADA"}, {"ada@example.org", "Ada@Example.org"}, {"nobody", "Nobody"},
		{"nobody@example.org", "NOBODY@example.org"}} {
		for i := range 10 {
			a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
				obj{"login": names[i%len(names)], "password": "wrong"}, comesFrom("192.0.2.7"))
		}
		for _, name := range names {
			p, r := a.refused(t, 429, "rate_limited", account{}, "POST", "/v1/auth/login",
				obj{"login": name, "password": "difference engine"}, comesFrom("192.0.2.7"))
			seen = append(seen, fmt.Sprint(p.Detail, p.Errors, r.Header.Get("RateLimit-Policy")))
			waits = append(waits, number(t, `(\d+)`, r.Header.Get("Retry-After")))
		}
	}
	for _, s := range seen {
		if s != seen[0] {
			t.Errorf("told apart: %s and %s", s, seen[0])
		}
	}
	// Attempts that come later wait longer by as much, and by a second of rounding.
	if limit := int(time.Since(began).Seconds()) + 2; slices.Max(waits)-slices.Min(waits) > limit {
		t.Errorf("told apart: Retry-After %v, within %d seconds", waits, limit)
	}
	// Other logins are not locked out, and a correct password resets the count.
	right := obj{"login": "ada", "password": "difference engine"}
	for range 15 {
		a.must(t, 200, account{}, "POST", "/v1/auth/login", right, comesFrom("192.0.2.8"))
	}
}

func TestLogin_byManyAddressesLocksNobodyOut(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, "", 1), behindProxy)
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"}, comesFrom("192.0.2.1"))
	right := obj{"login": "ada", "password": "difference engine"}
	a.must(t, 200, account{}, "POST", "/v1/auth/login", right, comesFrom("2001:db8:1:2::3"))
	tries := 0
	for host := 0; ; host++ {
		r := a.send(t, account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": "wrong"},
			comesFrom(fmt.Sprintf("198.51.100.%d", host%20)))
		if r.Status == 429 {
			break
		}
		if tries++; tries > 120 {
			break
		}
	}
	// Now a correct password is answered like a wrong one, so that the answer reveals neither the password nor the
	// account.
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", right, comesFrom("203.0.113.1"))
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
		obj{"login": "ada@example.org", "password": "difference engine"}, comesFrom("203.0.113.1"))
	// The account can still log in from addresses that it has used before; an IPv6 /64 counts as one address.
	a.must(t, 200, account{}, "POST", "/v1/auth/login", right, comesFrom("2001:db8:1:2:aaaa::4"))
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", right, comesFrom("2001:db8:1:3::3"))
}

// Guessing must not reveal which names exist, nor which e-mail address belongs to which name: neither by the limits nor
// by what finds an account.
func TestLogin_limitsReportNoAccount(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], limited(t, redisURL(t), 0.2), behindProxy) // two attempts at a name, twenty at an account
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": password}, comesFrom("192.0.2.1"))
	hash, err := signin.HashPassword(password)
	require.NoError(t, err)
	// Only the operator can enter an address that is not ASCII.
	if err := accounts.New(a.store).CreateUser(t.Context(),
		&models.User{Username: "eve", Email: "\u00e9ve@example.org", PasswordHash: hash}); err != nil {
		t.Fatal(err)
	}
	try := func(login, address string) string {
		t.Helper()
		before := a.Hashes()
		r := a.send(t, account{}, "POST", "/v1/auth/login", obj{"login": login, "password": "wrong"},
			comesFrom(address))
		detail := read[problem](t, r).Detail
		return fmt.Sprint(r.Status, detail, r.Header.Get("RateLimit-Policy"), a.Hashes()-before)
	}
	for range 3 { // exhausts the attempts at the username
		try("ada", "192.0.2.7")
	}
	want := try("somebody", "192.0.2.7")
	for _, login := range []string{"ada@example.org", "eve", "nobody", "nobody@example.org"} {
		if got := try(login, "192.0.2.7"); got != want {
			t.Errorf("%s after the tries of ada: %s, want %s", login, got, want)
		}
	}
	for i := range 22 { // exhausts those at the account
		try("ada", fmt.Sprintf("198.51.100.%d", i%20))
	}
	for _, login := range []string{"ada", "ada@example.org"} {
		if got, want := try(login, "203.0.113.9"), try("stranger", "203.0.113.9"); got != want {
			t.Errorf("%s when its account is blocked: %s, want %s", login, got, want)
		}
	}
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "grace", "email": "grace@example.org", "password": password}, comesFrom("192.0.2.1"))
	// A string that MySQL compares as equal to a login, and that no people take for it, is another login: unknown and
	// with attempts of its own. A username in other letters is not a login, and shares the attempts of the username.
	for _, login := range []string{"grace\u0001", "\u0001grace", "gr\u0430ce", "grace@example.org\u0001",
		"\uff47race", "gr\u00e1ce"} {
		a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
			obj{"login": login, "password": password}, comesFrom("192.0.2.98"))
	}
	a.refused(t, 429, "rate_limited", account{}, "POST", "/v1/auth/login",
		obj{"login": "gra\u0302ce", "password": password}, comesFrom("192.0.2.98"))
	for _, login := range []string{"eve", "EVE", "\u00e9ve@example.org", "e\u0301ve@example.org",
		"\u00c9VE@EXAMPLE.ORG", "eve@example.org", "grace ", "\u200bgrace", "\u200bgrace@example.org",
		"gr\u00e1ce@example.org"} {
		a.must(t, 200, account{}, "POST", "/v1/auth/login", obj{"login": login, "password": password},
			comesFrom("192.0.2.99"))
	}
}

// The mark of an address does not expire while the account keeps logging in from there.
func TestLogin_renewsTheMarkOfAPlace(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	a := newAPI(t, modes[0], limited(t, url, 1), behindProxy)
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"}, comesFrom("192.0.2.1"))
	right := obj{"login": "ada", "password": "difference engine"}
	a.must(t, 200, account{}, "POST", "/v1/auth/login", right, comesFrom("192.0.2.1"))
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	key := fmt.Sprintf("limits:account:%d", a.number(t, "SELECT id FROM users WHERE username='ada'"))
	marks, err := client.ZRange(t.Context(), key, 0, -1).Result()
	marks = slices.DeleteFunc(marks, func(m string) bool { return !strings.HasPrefix(m, "known:") })
	if err != nil || len(marks) != 1 {
		t.Fatalf("the marks are %v, %v", marks, err)
	}
	const most = 30 * 24 * time.Hour
	// 30 days less an hour have passed.
	if err := client.ZIncrBy(t.Context(), key, -float64((most - time.Hour).Microseconds()),
		marks[0]).Err(); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, client.Expire(t.Context(), key, time.Hour).Err())
	a.must(t, 200, account{}, "POST", "/v1/auth/login", right, comesFrom("192.0.2.1"))
	if left, err := client.TTL(t.Context(), key).Result(); err != nil || left < most-time.Minute {
		t.Errorf("the mark expires in %v, %v; want 30 days", left, err)
	}
}

// A refused login does not hash a password.
func TestLogin_hashesAsOftenForStrangersAsForUsers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
	without := a.account(t) // has no password
	for _, in := range []obj{
		{"login": "ada", "password": "wrong"}, {"login": "nobody", "password": "wrong"},
		{"login": "nobody@example.org", "password": "x"},
		{"login": without.Name, "password": "x"}, {"login": "", "password": ""},
		{"login": strings.Repeat("x", 5000), "password": strings.Repeat("x", 5000)},
	} {
		before := a.Hashes()
		a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", in)
		if n := a.Hashes() - before; n != 1 {
			t.Errorf("login %v hashes %d times, want once", in, n)
		}
	}
}
