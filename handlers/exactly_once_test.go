package handlers_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// mortal is the network between one server and MySQL. It breaks for good right after MySQL has carried out the last
// COMMIT that the test allows, and before the server receives the answer. To MySQL, this looks like a process that is
// killed at that instant.
type mortal struct {
	mu      sync.Mutex
	conns   []net.Conn
	commits int // left
	dead    bool
}

var errDead = errors.New("the process is dead")

// mortalDSN returns a data source name that connects to MySQL through m.
func mortalDSN(t *testing.T, dsn string, m *mortal) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	network := config.Net
	config.Net = "mortal" + strings.ToLower(rand.Text())
	mysql.RegisterDialContext(config.Net, func(ctx context.Context, address string) (net.Conn, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.dead {
			return nil, errDead
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		m.conns = append(m.conns, conn)
		return &mortalConn{conn, m}, nil
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(config.Net) })
	return config.FormatDSN()
}

// die makes the COMMIT with this number, from 1 on, the last.
func (m *mortal) die(after int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commits = after
}

func (m *mortal) died() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

type mortalConn struct {
	net.Conn
	m *mortal
}

func (c *mortalConn) Write(b []byte) (int, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	n, err := c.Conn.Write(b)
	const head = 4 // of a packet
	if err != nil || c.m.commits == 0 || len(b) < head || string(b[head:]) != "\x03COMMIT" {
		return n, err
	}
	if c.m.commits--; c.m.commits > 0 {
		return n, nil
	}
	if _, err := c.Read(make([]byte, 512)); err != nil {
		panic("COMMIT was not answered: " + err.Error())
	}
	c.m.dead = true
	for _, conn := range c.m.conns {
		conn.Close()
	}
	return 0, errDead
}

// staged changes requests whose example in the contract has no effect, or none when repeated.
var staged = map[string]func(w *world, try *idempotentTry){
	"createPost": func(_ *world, try *idempotentTry) { try.body["tags"] = []string{strings.ToLower(rand.Text()[:12])} },
	"login": func(w *world, try *idempotentTry) {
		try.body["login"] = w.someone(caller{role: models.RoleUser}).Name
	},
	"readNotifications": func(w *world, try *idempotentTry) {
		id := w.insert(fmt.Sprintf(`
			INSERT INTO notifications (user_id, kind, actor_id, post_id, created_at)
			VALUES (%d,2,1,1,NOW())`, try.as.ID))
		try.body = obj{"ids": []json.Number{json.Number(id)}}
	},
	"reportContent": func(w *world, try *idempotentTry) {
		try.body["target_type"], try.body["target_id"] = "post", w.post(try.owner).ID
	},
	"resolveReports": func(w *world, try *idempotentTry) {
		try.body["ids"] = []int64{w.reported(try.owner), 999_999, w.reported(try.owner)}
	},
	"reconcile": func(w *world, try *idempotentTry) {
		post := w.post(try.owner)
		w.exec("UPDATE posts SET likes_count=7 WHERE id=?", post.ID)
		try.body = obj{"target_type": "post", "target_id": post.ID, "dry_run": false, "reason": "Looks wrong."}
	},
	"voidClaims": func(w *world, try *idempotentTry) {
		try.body["drop_id"] = nil
		for range 2 {
			w.claim(try.owner, w.drop(try.owner, 0))
		}
	},
	"unbanUser": func(w *world, try *idempotentTry) { w.ban(try.owner) },
	"reauthenticate": func(w *world, try *idempotentTry) {
		w.exec("UPDATE sessions SET proven_at=NULL WHERE user_id=?", try.as.ID)
	},
}

// link returns the token of a link that was sent to an address of the user.
func (w *world) link(user account, kind models.MailKind) string {
	w.t.Helper()
	token, hash := models.NewToken()
	address := user.Name + "@example.org"
	switch kind {
	case models.MailPasswordReset:
		w.exec("UPDATE users SET email=? WHERE id=?", address, user.ID)
	case models.MailEmailConfirm:
		w.exec("UPDATE users SET pending_email=? WHERE id=?", address, user.ID)
	default: // the account has another address now
	}
	w.exec(`
		INSERT INTO account_links (token_hash, mail_id, kind, user_id, address, created_at, expires_at)
		VALUES (UNHEX(?),1,?,?,?,UTC_TIMESTAMP(),UTC_TIMESTAMP() + INTERVAL 1 DAY)`,
		hex.EncodeToString(hash[:]), kind, user.ID, address)
	return token
}

// inSteps lists the requests that are not complete with their last COMMIT: a repeated request completes them.
var inSteps = map[string]bool{"resolveReports": true}

// totals counts the contents of the database: for each table the rows, the values that are not NULL, and the sums of
// counters. Two requests with the same effect add the same to it.
func (w *world) totals() map[string]float64 {
	w.t.Helper()
	if w.counted == nil {
		w.counted = w.countedColumns()
	}
	var parts []string
	for table, columns := range w.counted {
		list := ""
		for _, column := range columns {
			list += ",COALESCE(" + column + ",0)"
		}
		parts = append(parts, "SELECT '"+table+"', CONCAT_WS(' '"+list+") FROM `"+table+"`")
	}
	rows, err := w.store.Pool().QueryContext(w.t.Context(), strings.Join(parts, " UNION ALL "))
	require.NoError(w.t, err)
	defer rows.Close()
	found := map[string]float64{}
	for rows.Next() {
		var table, list string
		require.NoError(w.t, rows.Scan(&table, &list))
		for i, text := range strings.Fields(list) {
			n, err := strconv.ParseFloat(text, 64)
			require.NoError(w.t, err)
			found[table+" "+w.counted[table][i]] = n
		}
	}
	require.NoError(w.t, rows.Err())
	return found
}

// counting matches the columns whose sums are compared.
var counting = regexp.MustCompile(
	`_count$|^(status|state|version|role|locked|pinned|milestone|claimed|read|is_open|posts|weight|hits)$`)

// countedColumns returns the columns of each table that totals counts.
func (w *world) countedColumns() map[string][]string {
	rows, err := w.store.Pool().QueryContext(w.t.Context(), `
		SELECT c.table_name, c.column_name, c.is_nullable='YES', c.data_type IN ('tinyint','smallint','int','bigint')
		FROM information_schema.columns c
		JOIN information_schema.tables t
			ON t.table_schema=c.table_schema AND t.table_name=c.table_name AND t.table_type='BASE TABLE'
		WHERE c.table_schema=DATABASE()
			-- A repeated request ends the first session and starts another, which is an event of its own.
			AND c.table_name NOT IN ('idempotency_keys','security_log','session_changes')`)
	require.NoError(w.t, err)
	defer rows.Close()
	counted := map[string][]string{}
	for rows.Next() {
		var table, column string
		var nullable, number bool
		require.NoError(w.t, rows.Scan(&table, &column, &nullable, &number))
		if counted[table] == nil {
			counted[table] = []string{"COUNT(*)"}
		}
		if nullable {
			counted[table] = append(counted[table], "COUNT(`"+column+"`)")
		}
		if number && counting.MatchString(column) {
			counted[table] = append(counted[table], "SUM(`"+column+"`)")
		}
	}
	require.NoError(w.t, rows.Err())
	return counted
}

// effect returns the difference of the totals to before.
func (w *world) effect(before map[string]float64) map[string]float64 {
	w.t.Helper()
	changes := map[string]float64{}
	for counted, total := range w.totals() {
		if total != before[counted] {
			changes[counted] = total - before[counted]
		}
	}
	return changes
}

var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// alike removes from a JSON value what differs between requests with the same effect on two objects: ids, names, times.
func alike(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			out[name] = alike(name, value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = alike(name, value)
		}
		return out
	case float64:
		return v != 0
	case nil:
		return name == "secret" // which no repetition shows again
	case string:
		switch name {
		case "id", "token", "secret", "username", "email", "pending_email", "tags":
			return v != ""
		}
		return digits.ReplaceAllString(v, "#")
	}
	return v
}

func alikeBody(t *testing.T, body []byte) any {
	t.Helper()
	if len(body) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return alike("", v)
}

var secret = regexp.MustCompile(`"(token|secret)":("[^"]*"|null)|"id":"[0-9a-f]{16}"`)

// idempotentTry is a request with an Idempotency-Key that can be sent to any server of a world.
type idempotentTry struct {
	op      operation
	as      account
	owner   account // of the object
	path    string
	body    obj
	headers []header
}

// owned are the reaches of permissions that every caller has for their own objects.
var owned = []models.Reach{models.Own, models.Hidden, models.Kept}

func (w *world) newTry(o operation) idempotentTry {
	w.t.Helper()
	try := idempotentTry{op: o}
	try.owner = w.someone(caller{role: models.RoleUser})
	if o.rule.Least > models.RoleAnonymous {
		if try.as = w.someone(caller{role: o.rule.Least}); slices.Contains(owned, o.rule.On) {
			try.owner = try.as
		}
	}
	try.path, try.headers = o.request(w, try.as, try.owner)
	try.headers = append(try.headers, key(rand.Text()))
	try.body = w.completeBody(o, try.as)
	if stage := staged[o.id]; stage != nil {
		stage(w, &try)
	}
	return try
}

func (w *world) sendTry(try idempotentTry) reply {
	w.t.Helper()
	return w.ask(try.op, try.as, try.path, try.body, try.headers)
}

// TestIdempotency_everyPOSTIsCarriedOutOnce sends every POST of the contract with an Idempotency-Key to a process that
// dies after its first COMMIT, after its second and so on, and again to another process. Wherever the first process
// died, the effect in MySQL is that of one request, and the answer is that of a process that does not die.
//
// The test includes every POST of the contract. If it fails for a new one: its Store method must write in one transact;
// other writes need db.Aside or db.Step; ids that the answer needs are recorded by insert or made; and the
// repeat column in routes.go must answer the repeated request. If the example of the contract has no effect, add a line
// to staged.
func TestIdempotency_everyPOSTIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deaths := 0
	for _, o := range operations(t) {
		if o.method != http.MethodPost || !o.takesKey() {
			continue
		}
		t.Run(o.id, func(t *testing.T) {
			w := w.in(t)
			try := w.newTry(o)
			before := w.totals()
			first := w.sendTry(try)
			effect := w.effect(before)
			if first.Status >= 300 || len(effect) == 0 {
				t.Fatalf("it changes %v and is answered with %s; it has to have an effect: see staged", effect, first)
			}
			w.answersAgain(try, first, effect, before)
			for commit := 1; w.diesAfter(o, commit, first, effect); commit++ {
				deaths++
			}
		})
	}
	t.Logf("%d deaths", deaths)
}

// in returns the world for a subtest.
func (w *world) in(t *testing.T) *world {
	v := *w
	v.t = t
	return &v
}

// answersAgain repeats an answered request.
func (w *world) answersAgain(try idempotentTry, first reply, effect, before map[string]float64) {
	w.t.Helper()
	again := w.sendTry(try)
	if again2 := w.effect(before); !maps.Equal(again2, effect) {
		w.t.Errorf("first it changes %v, with the repetition %v", effect, again2)
	}
	if again.Status != first.Status || !replayed(again) ||
		first.Header.Get("Location") != again.Header.Get("Location") ||
		!bytes.Equal(secret.ReplaceAll(again.Body, nil), secret.ReplaceAll(first.Body, nil)) {
		w.t.Errorf("answered with %s, then (replayed: %t) with %s", first, replayed(again), again)
	}
}

// diesAfter reports whether the process died, that is, whether the request has that many COMMITs.
func (w *world) diesAfter(o operation, commit int, want reply, effect map[string]float64) bool {
	w.t.Helper()
	m := &mortal{}
	store := openStore(w.t, mortalDSN(w.t, w.dsn, m))
	try := w.newTry(o)
	before := w.totals()
	dying := w.in(w.t)
	dying.api = serve(w.t, store, avatarsAt("example.com"), withMail)
	m.die(commit)
	dying.sendTry(try)
	if !m.died() {
		return false
	}
	w.repeats(fmt.Sprintf("death after COMMIT %d", commit), try, want, effect, before)
	return true
}

// repeats sends a request again after its process died, as death describes. The effect must be that of one request, and
// the answers to this and to another repetition must be like want.
func (w *world) repeats(death string, try idempotentTry, want reply, effect, before map[string]float64) {
	w.t.Helper()
	carriedOut := maps.Equal(w.effect(before), effect)
	// Until then a repeated request is refused with 409.
	w.exec("UPDATE idempotency_keys SET claimed_until='2000-01-01'")
	again := w.sendTry(try)
	if changed := w.effect(before); !maps.Equal(changed, effect) {
		w.t.Errorf("%s: with the repetition %v is changed, want %v", death, changed, effect)
	}
	if again.Status != want.Status || !reflect.DeepEqual(alikeBody(w.t, again.Body), alikeBody(w.t, want.Body)) {
		w.t.Errorf("%s: the repetition is answered with %s, want the likes of %s", death, again, want)
	}
	if carriedOut && !replayed(again) && !inSteps[try.op.id] {
		w.t.Errorf("%s: it was carried out, and the repetition does not know", death)
	}
	w.answersAgain(try, again, effect, before)
}
