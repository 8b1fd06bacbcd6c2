package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/handlers/signin"
	"likewise/internal/testkit"
	"likewise/models"
)

// marker is part of every attack and of nothing else, so that any trace of it comes from an attack.
const marker = "zqx9"

// attacks are strings that try to become part of a statement, a script, a pattern or a command.
var attacks = []string{
	marker + `' OR '1'='1`, marker + `'; DROP TABLE users; -- `, marker + `" OR ""="`, marker + `\' OR 1=1 -- `,
	marker + `') UNION SELECT password_hash FROM users #`,
	"1 OR 1=1 " + marker, "1) OR SLEEP(15) -- " + marker, marker + `' AND SLEEP(15) AND '`, marker + "`; /*",
	marker + ` */ OR 1 /*`, marker + `\`, marker + "\x00'", marker + "\x1a'", marker + " ? ?",
	marker + "%_", "+" + marker + ` -"a b" @4 (c >d <e ~f`, marker + `* "`,
	marker + `' return redis.call('FLUSHALL') --`, marker + `]] redis.call('FLUSHALL') [[`,
	marker + "\r\nFLUSHALL\r\n", "*1\r\n$8\r\nFLUSHALL\r\n" + marker,
	marker + "\u2019 OR 1=1", marker + "\u02bc OR 1=1", marker + "%27 OR 1=1", "{" + marker + "}", marker + ":likes",
	"../" + marker, marker + `{{7*7}}${7*7}`, `{"$gt":"` + marker + `"}`, marker + strings.Repeat("'", 2000),
}

// statements inspects the statements sent to MySQL.
type statements struct {
	mu    sync.Mutex
	seen  int      // statements with the marker
	wrong []string // those with the marker outside of a string
}

func (s *statements) look(text string) {
	if !strings.Contains(text, marker) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	code := outsideStrings(text)
	injected := func(part string) bool { return strings.Contains(code, part) }
	if slices.ContainsFunc([]string{marker, "SLEEP", "DROP", "password_hash FROM"}, injected) {
		s.wrong = append(s.wrong, text)
	}
}

// outsideStrings returns the parts that MySQL parses as SQL and not as text. Under the connections' sql_mode, a
// backslash escapes.
func outsideStrings(text string) string {
	var code strings.Builder
	for i := 0; i < len(text); i++ {
		quote := text[i]
		if quote != '\'' && quote != '"' && quote != '`' {
			code.WriteByte(quote)
			continue
		}
		for i++; i < len(text) && text[i] != quote; i++ {
			if text[i] == '\\' && quote != '`' {
				i++
			}
		}
		if i >= len(text) {
			return code.String() + marker // unterminated
		}
	}
	return code.String()
}

func TestOutsideStrings_seesAnInjection(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`SELECT 'a' FROM t WHERE b='zqx9\' OR 1'`: "SELECT  FROM t WHERE b=",
		`SELECT 'zqx9' OR '1'='1'`:                "SELECT  OR =", `SELECT 1 OR zqx9`: "SELECT 1 OR zqx9",
		`SELECT 'zqx9\\' OR 1`: "SELECT  OR 1", `SELECT 'zqx9\'`: "SELECT zqx9",
		"SELECT `a` FROM \"b\"": "SELECT  FROM ",
	} {
		if got := outsideStrings(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// spied is a connection that exposes what it sends. The driver writes each packet whole: four bytes of length and
// number, then 3 for a query or 22 for a statement to prepare.
type spied struct {
	net.Conn
	statements *statements
}

func (c spied) Write(b []byte) (int, error) {
	if len(b) > 5 && b[3] == 0 && (b[4] == 3 || b[4] == 22) {
		c.statements.look(string(b[5:]))
	}
	return c.Conn.Write(b)
}

var spies atomic.Int64

// spy serves an API of a mode, inspects its statements and monitors its Redis.
func spy(t *testing.T, m mode) (*world, *statements) {
	t.Helper()
	config, err := mysql.ParseDSN(testkit.Database(t))
	require.NoError(t, err)
	seen := &statements{}
	network := fmt.Sprintf("spied-%d", spies.Add(1))
	mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return spied{conn, seen}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(network) })
	config.Net = network
	store := openStore(t, config.FormatDSN())
	parts := m.parts(t, store, store)
	kept := imagesIn(t, t.TempDir())
	a := serve(t, store, parts.use, limited(t, redisURL(t), 1e6), withImages(kept))
	a.settle, a.mode = parts.settle, m.name
	hash, err := signin.HashPassword("correct horse")
	require.NoError(t, err)
	w := &world{api: a, t: t, password: hash, images: kept}
	ada := w.someone(caller{role: models.RoleUser})
	for range 3 {
		w.post(ada)
	}
	post := w.post(ada)
	for range 9 {
		w.comment(ada, post.ID)
	}
	return w, seen
}

// monitor records every command that the tests' Redis receives. When stopped, it returns those with the marker.
func monitor(t *testing.T) (stop func() []string) {
	t.Helper()
	conn, err := net.Dial("tcp", testkit.Redis(t).Addr)
	require.NoError(t, err)
	fmt.Fprint(conn, "MONITOR\r\n")
	lines := bufio.NewReaderSize(conn, 1<<20)
	if ok, err := lines.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", ok, err)
	}
	found := make(chan []string, 1)
	go func() {
		var list []string
		for {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, "zqx9 is over") {
				found <- list
				return
			}
			if strings.Contains(line, marker) || strings.Contains(line, "FLUSHALL") {
				list = append(list, line)
			}
		}
	}()
	return func() []string {
		other, err := net.Dial("tcp", conn.RemoteAddr().String())
		require.NoError(t, err)
		defer other.Close()
		defer conn.Close()
		fmt.Fprint(other, "ECHO \"zqx9 is over\"\r\n")
		return <-found
	}
}

// TestInjection_isTextEverywhere puts every attack into every string of every body, every parameter of every path and
// query, and every header of the contract. The attacks reach MySQL only inside of strings, do not reach Redis, and
// cause no 5xx.
func TestInjection_isTextEverywhere(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w, seen := spy(t, m)
			heard := monitor(t)
			tried, step := 0, testkit.Volume(1, 8)
			var slowest time.Duration
			try := func(o operation, as account, path string, body any, headers ...header) {
				t.Helper()
				tried++
				begin := time.Now()
				var r reply
				var err error
				if o.id == "openStream" {
					r = w.ask(o, account{}, path, nil, nil) // which leaves it
				} else if r, err = w.try(as, o.method, path, body, headers...); err != nil {
					if !strings.Contains(err.Error(), "invalid header field value") { // the client itself refuses
						t.Errorf("%s: %v", o.id, err)
					}
					return
				}
				slowest = max(slowest, time.Since(begin))
				if r.Status >= 500 && r.Status != 501 {
					t.Errorf("%s %s %v %v: %s", o.method, path, body, headers, r)
				}
				low := strings.ToLower(string(r.Body))
				if r.Status >= 400 && (strings.Contains(low, "sql syntax") || strings.Contains(low, "error 1")) {
					t.Errorf("%s: %s", o.id, r)
				}
			}
			for _, o := range operations(t) {
				ofTarget := slices.ContainsFunc([]string{"ike", "Post", "Comment", "Drop", "Claim"},
					func(word string) bool { return strings.Contains(o.id, word) })
				if m.name == "gated" && !ofTarget {
					continue // knows nothing of the gate
				}
				for place, p := range append(o.params, node{}) {
					as := w.someone(caller{role: max(o.rule.Least, models.RoleUser)})
					owner := as
					if o.rule.On == models.Others || o.rule.On == models.Lower {
						owner = w.someone(caller{role: models.RoleUser})
					}
					path, headers := o.request(w, as, owner)
					base, query, _ := strings.Cut(path, "?")
					var body any
					if b := o.body(t); b != nil {
						body = b
					}
					full := o.k.follow(p).value
					name, _ := full["name"].(string)
					// Under the race detector each place takes some of the attacks, in turn.
					for i := place % step; i < len(attacks); i += step {
						attack := attacks[i]
						switch full["in"] {
						case "path":
							prefix, rest, _ := strings.Cut(o.path, "{")
							_, suffix, _ := strings.Cut(rest, "}")
							try(o, as, prefix+url.PathEscape(attack)+suffix, body, headers...)
						case "query":
							values, err := url.ParseQuery(query)
							require.NoError(t, err)
							values.Set(name, attack)
							if o.id == "openStream" && !values.Has("posts") {
								values.Set("posts", "1")
							}
							try(o, as, base+"?"+values.Encode(), body, headers...)
						case "header":
							try(o, as, path, body, append(headers, header{name, attack})...)
						case nil: // what every request has: a token, an id; and its body
							try(o, account{Token: attack}, path, body, headers...)
							for _, changed := range everyString(t, body, attack) {
								try(o, as, path, changed, headers...)
							}
						}
					}
				}
			}
			for _, command := range heard() {
				t.Errorf("Redis was sent %s", command)
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			for _, statement := range seen.wrong {
				t.Errorf("MySQL was sent %s", statement)
			}
			t.Logf("%d attacks, %d statements, the slowest answer took %v", tried, seen.seen, slowest)
			if seen.seen < testkit.Volume(200, 100) {
				t.Errorf("only %d statements held an attack", seen.seen)
			}
			if slowest > 14*time.Second {
				t.Errorf("an answer took %v", slowest)
			}
		})
	}
}

// everyString yields the body once for each string in it, with that string replaced, and once for each member name.
func everyString(t *testing.T, body any, by string) []string {
	t.Helper()
	if body == nil {
		return nil
	}
	var out []string
	write := func() {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		out = append(out, string(text))
	}
	var walk func(at any, set func(any))
	walk = func(at any, set func(any)) {
		switch at := at.(type) {
		case map[string]any:
			for name, value := range at {
				walk(value, func(v any) { at[name] = v })
			}
			at[by] = 1
			write()
			delete(at, by)
		case []any:
			for i, value := range at {
				walk(value, func(v any) { at[i] = v })
			}
		case string:
			set(by)
			write()
			set(at)
		default:
			set(by) // a string where a number should be
			write()
			set(at)
		}
	}
	walk(body, func(any) {})
	return out
}

// A token is 256 random bits. Tokens of another form are not looked up, and guessing is limited like any request.
func TestTokens_cannotBeGuessed(t *testing.T) {
	t.Parallel()
	w, _ := spy(t, modes[0])
	ada := w.someone(caller{role: models.RoleUser})
	w.must(t, 200, ada, "GET", "/v1/me", nil)
	last := ada.Token[len(ada.Token)-1]
	for _, token := range []string{
		"", "x", ada.Token[:42], ada.Token + "A", " " + ada.Token, ada.Token + "=", strings.ToLower(ada.Token) + "x",
		strings.Repeat("A", 43), ada.Token[:42] + string(last^1),
		ada.Token + "\x00", "%" + ada.Token, strings.Repeat("A", 5000), "null", "undefined",
		fmt.Sprintf("%x", models.HashToken(ada.Token)),
	} {
		r, err := w.try(account{}, "GET", "/v1/me", nil, header{"Authorization", "Bearer " + token})
		if err != nil {
			if !strings.Contains(err.Error(), "invalid header field value") {
				t.Error(err)
			}
			continue
		}
		if r.Status != 401 {
			t.Errorf("%q: %s", token, r)
		}
	}
	guesser := newAPI(t, modes[0], limited(t, "", 0.05), behindProxy)
	guesses, _ := guesser.until(t, 401, account{Token: "made-up"}, "GET", "/v1/me", nil, comesFrom("192.0.2.66"))
	if guesses > 100 {
		t.Errorf("%d guesses passed", guesses)
	}
	guesser.must(t, 200, guesser.account(t), "GET", "/v1/me", nil, comesFrom("192.0.2.67"))
}
