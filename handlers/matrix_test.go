package handlers_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/handlers/signin"
	"likewise/images"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/moderation"
	"likewise/models/stock"
)

// caller sends the requests of a row of the matrix.
type caller struct {
	name   string
	role   models.Role
	token  bool         // sends an API token
	scopes models.Scope // of the token
	banned bool         // with a session that has not ended
}

var callers = []caller{
	{name: "the anonymous"},
	{name: "a user", role: models.RoleUser},
	{name: "a moderator", role: models.RoleModerator},
	{name: "an admin", role: models.RoleAdmin},
	{name: "a banned user", role: models.RoleUser, banned: true},
	{name: "a banned admin", role: models.RoleAdmin, banned: true},
	{name: "a user's token to read", role: models.RoleUser, token: true, scopes: models.ScopeRead},
	{name: "a user's token to write", role: models.RoleUser, token: true, scopes: models.ScopeWrite},
	{name: "a moderator's token to moderate", role: models.RoleModerator, token: true, scopes: models.ScopeModerate},
	{name: "an admin's token to moderate", role: models.RoleAdmin, token: true, scopes: models.ScopeModerate},
	{name: "a former moderator's token to moderate", role: models.RoleUser, token: true, scopes: models.ScopeModerate},
	{name: "an admin's token to read and write", role: models.RoleAdmin, token: true,
		scopes: models.ScopeRead | models.ScopeWrite},
}

// relation is the relation of the caller to the owner of a request's object.
type relation struct {
	name string
	own  bool
	role models.Role // of the owner, if it is another user
}

var relations = []relation{
	{"their own", true, 0},
	{"a user's", false, models.RoleUser},
	{"a moderator's", false, models.RoleModerator},
	{"an admin's", false, models.RoleAdmin},
}

// verdict returns what the table of permissions decides for a cell: 0 for allowed, or the status of the refusal.
func verdict(rule models.Rule, by caller, on relation) int {
	switch {
	case rule.Scope == models.NoToken:
		return 0
	case by.banned, by.role < rule.Least && by.role == models.RoleAnonymous:
		return http.StatusUnauthorized
	case by.role < rule.Least, by.token && by.scopes&rule.Scope == 0:
		return http.StatusForbidden
	}
	switch rule.On {
	case models.Own:
		if !on.own {
			return http.StatusForbidden
		}
	case models.Hidden:
		if !on.own {
			return http.StatusNotFound
		}
	case models.Kept:
		if !on.own && by.role < models.RoleModerator {
			return http.StatusForbidden
		}
	case models.Others:
		if on.own {
			return http.StatusForbidden
		}
	case models.Lower:
		if on.own || by.role != models.RoleAdmin && on.role >= by.role {
			return http.StatusForbidden
		}
	}
	return 0
}

// world is a database with the objects of a matrix.
type world struct {
	*api
	t        *testing.T
	dsn      string              // of its database
	password string              // hash of the password in the contract's examples
	counted  map[string][]string // see totals
	callers  map[caller]account  // see lasting
	images   images.Store
	sums     string // the query of checksums
}

func newWorld(t *testing.T) *world {
	t.Helper()
	hash, err := signin.HashPassword("correct horse")
	require.NoError(t, err)
	dsn := testkit.Database(t)
	kept := imagesIn(t, t.TempDir())
	w := &world{api: serve(t, openStore(t, dsn), avatarsAt("example.com"), withImages(kept), withMail, secretKey),
		t: t, dsn: dsn,
		password: hash, callers: map[caller]account{}, images: kept}
	w.exec("INSERT INTO settings (name, value) VALUES ('webhooks', '')") // as the first webhook does
	ada := w.someone(caller{role: models.RoleUser})
	w.exec("UPDATE users SET username='ada' WHERE id=?", ada.ID)
	// The examples are about the posts 1 to 3 and the comments 4, 5 and 9.
	for range 3 {
		w.post(ada)
	}
	post := w.post(ada)
	for range 9 {
		w.comment(ada, post.ID)
	}
	for range 3 {
		w.drop(ada, 0)
	}
	return w
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.store.Pool().ExecContext(w.t.Context(), query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

// insert runs an INSERT and returns the id of its row.
func (w *world) insert(query string) string {
	w.t.Helper()
	result, err := w.store.Pool().ExecContext(w.t.Context(), query)
	if err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	id, err := result.LastInsertId()
	require.NoError(w.t, err)
	return strconv.FormatInt(id, 10)
}

// someone creates an account for the caller. State that the API cannot produce, such as a banned user's session, is
// written into the database.
func (w *world) someone(as caller) account {
	w.t.Helper()
	name := "user" + strconv.FormatInt(made.Add(1), 10)
	user := &models.User{Username: name, Email: name + models.NoEmailDomain, PasswordHash: w.password, Role: as.role}
	require.NoError(w.t, accounts.New(w.store).CreateUser(w.t.Context(), user))
	out := account{ID: user.ID, Name: name}
	out.Token = w.token(out, as.token, as.scopes)
	if as.banned {
		w.ban(out)
	}
	return out
}

// lasting returns an account for the caller, the same each time. It is for requests that change nothing.
func (w *world) lasting(as caller) account {
	w.t.Helper()
	if as.role == models.RoleAnonymous {
		return account{}
	}
	if _, ok := w.callers[as]; !ok {
		w.callers[as] = w.someone(as)
	}
	return w.callers[as]
}

func (w *world) ban(user account) {
	w.t.Helper()
	w.exec("UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.' WHERE id=?", user.ID)
}

// token creates a session or an API token of the user.
func (w *world) token(as account, isToken bool, scopes models.Scope) string {
	w.t.Helper()
	token, hash := models.NewToken()
	// It is marked as just used, so that using it changes nothing.
	w.exec(`
		INSERT INTO sessions (token_hash, user_id, expires_at, proven_at, is_token, name, scopes, last_used_at)
		VALUES (UNHEX(?),?,'2037-01-01','2037-01-01',?,'a token',?,?)`,
		hex.EncodeToString(hash[:]), as.ID, isToken, uint8(scopes), time.Now().UTC().Add(time.Hour))
	return token
}

func (w *world) post(by account) *models.Post {
	w.t.Helper()
	post, err := content.New(w.store).CreatePost(w.t.Context(), models.Author{ID: by.ID},
		models.PostText{Title: "A title", Content: "Some content"})
	require.NoError(w.t, err)
	return post
}

func (w *world) comment(by account, postID int64) *models.Comment {
	w.t.Helper()
	comment, err := content.New(w.store).CreateComment(w.t.Context(), models.Author{ID: by.ID}, postID, nil,
		models.CommentText{Content: "Some content"})
	require.NoError(w.t, err)
	return comment
}

// drop attaches a drop to a new post of the owner. Its claims are to be confirmed within that many seconds, or not at
// all if it is 0.
func (w *world) drop(by account, confirmWithin int64) int64 {
	w.t.Helper()
	// A banned user can no longer create one.
	id := w.insert(fmt.Sprintf("INSERT INTO drops"+
		" (post_id, user_id, title, stock, confirm_within, created_at, updated_at)"+
		" VALUES (%d,%d,'A ticket',1000,%d,NOW(3),NOW(3))", w.post(by).ID, by.ID, confirmWithin))
	n, err := strconv.ParseInt(id, 10, 64)
	require.NoError(w.t, err)
	return n
}

var claimIDs atomic.Int64

// claim claims one of the stock of a drop.
func (w *world) claim(by account, dropID int64) string {
	w.t.Helper()
	if w.mode == "gated" {
		r := w.must(w.t, 201, by, "POST", fmt.Sprintf("/v1/drops/%d/claims", dropID), nil)
		return read[claim](w.t, r).ID
	}
	// The id does not come from counters.IDs, which reserves ids in the background, while requests must change nothing.
	shards := int64(w.store.Shards())
	id := claimIDs.Add(1)*shards + dropID%shards
	claim, _, err := stock.New(w.store).ClaimDirect(w.t.Context(), dropID, by.ID, id)
	require.NoError(w.t, err)
	return models.ID(claim.ID).String()
}

// objects creates the object that a path parameter names, by the name of the parameter's component in the contract.
// Objects without an owner ignore it.
var objects = map[string]func(w *world, owner account) string{
	"UserId": func(_ *world, owner account) string { return strconv.FormatInt(owner.ID, 10) },
	"PostId": func(w *world, owner account) string { return strconv.FormatInt(w.post(owner).ID, 10) },
	"CommentId": func(w *world, owner account) string {
		return strconv.FormatInt(w.comment(owner, w.post(owner).ID).ID, 10)
	},
	"DropId": func(w *world, owner account) string { return strconv.FormatInt(w.drop(owner, 0), 10) },
	"ClaimId": func(w *world, owner account) string {
		return w.claim(owner, w.drop(w.someone(caller{role: models.RoleUser}), 600))
	},
	"ImageId": func(w *world, owner account) string {
		i := addImage(w.t, w.store, w.images, max(owner.ID, 1))
		return i.Name
	},
	"SessionId": func(w *world, owner account) string {
		return models.SessionID(models.HashToken(w.token(owner, false, 0)))
	},
	"APITokenId": func(w *world, owner account) string {
		return models.SessionID(models.HashToken(w.token(owner, true, 1)))
	},
	"ReportId":    func(w *world, owner account) string { return strconv.FormatInt(w.reported(owner), 10) },
	"OperationId": func(w *world, owner account) string { return strconv.FormatInt(w.removeAll(owner), 10) },
	"file":        func(*world, account) string { return "docs.js" },
	"FeedTag":     func(*world, account) string { return "go" },
	"SitemapPage": func(*world, account) string { return "1" },
	"StreamId": func(w *world, owner account) string {
		f, err := w.tryWatch("posts=1", header{"Authorization", "Bearer " + owner.Token})
		if err != nil {
			return "none" // a banned owner cannot open one
		}
		w.t.Cleanup(f.close)
		return f.id(w.t)
	},
	// A draft of the caller, as all keys are.
	"DraftKey": func(w *world, owner account) string {
		if owner.ID == 0 {
			return "none"
		}
		key := "draft-" + strconv.FormatInt(made.Add(1), 10)
		w.insert(fmt.Sprintf("INSERT INTO drafts (user_id, draft_key, title, content, tags)"+
			" VALUES (%d,'%s','A title','','')", owner.ID, key))
		return key
	},
	"name":   func(_ *world, owner account) string { return owner.Name },
	"prefix": func(_ *world, owner account) string { return owner.Name },
	// The version of objects created with it.
	"RevisionVersion": func(*world, account) string { return "0" },
	"RedactionId": func(w *world, owner account) string {
		r, err := moderation.New(w.store).RequestRedaction(w.t.Context(), owner.ID,
			models.Target{Kind: models.KindPost, ID: w.post(owner).ID}, 0, "It has my address.")
		require.NoError(w.t, err)
		return strconv.FormatInt(r.ID, 10)
	},
	"LikeVoidId": func(w *world, _ account) string {
		return w.insert(`
			INSERT INTO like_voids (user_id, requested_by, requested_at, reason)
			VALUES (1,1,NOW(3),'Spam.')`)
	},
	"LikeRingId": func(w *world, owner account) string {
		ring := w.insert(fmt.Sprintf("INSERT INTO like_rings"+
			" (author_id, coincidences, occasions, first_at, last_at, evidence, found_at)"+
			" VALUES (%d,5,5,'2026-01-01','2026-01-02','[]',NOW(3))", owner.ID))
		w.exec("INSERT INTO like_ring_members (ring_id, user_id, coincidences, likes) VALUES (?,?,5,5)", ring,
			w.someone(caller{role: models.RoleUser}).ID)
		return ring
	},
	"WebhookId": func(w *world, _ account) string {
		return w.insert("INSERT INTO webhooks (url, events, secret, created_by, created_at, updated_at)" +
			" VALUES ('https://hooks.example.org/likewise','post.created','secret',1,NOW(3),NOW(3))")
	},
	// A delivery to the latest webhook.
	"WebhookDeliveryId": func(w *world, _ account) string {
		return w.insert("INSERT INTO webhook_events (webhook_id, type, object_type, object_id, data, state," +
			" attempt_log, due_at, retry_until, created_at)" +
			" SELECT MAX(id),'post.created','post',1,'{}',2,'[]',NOW(3),NOW(3),NOW(3) FROM webhooks")
	},
	"DeadLetterId": func(w *world, _ account) string {
		return w.insert(`
			INSERT INTO dead_letters
				(digest, shard, epoch, seq, topic, topic_partition, topic_offset, payload, error, created_at)
			VALUES (UNHEX(SHA2(UUID(),256)),1,1,1,'likes',1,1,
				'probed','event has an unknown type',NOW(3))`)
	},
}

// reported creates a report of a post of the owner and returns its case.
func (w *world) reported(owner account) int64 {
	w.t.Helper()
	target := models.Target{Kind: models.KindPost, ID: w.post(owner).ID}
	if _, err := moderation.New(w.store).ReportContent(w.t.Context(), w.someone(caller{role: models.RoleUser}).ID,
		models.NewReport{Target: target, Reason: "spam"}); err != nil {
		w.t.Fatal(err)
	}
	return w.number(w.t, "SELECT id FROM report_cases WHERE is_open=1 AND target_type='post' AND target_id=?",
		target.ID)
}

// remove deletes a post or comment as a moderator.
func (w *world) remove(kind models.TargetKind, id string) {
	w.t.Helper()
	n, err := strconv.ParseInt(id, 10, 64)
	require.NoError(w.t, err)
	if err := moderation.New(w.store).RemoveContent(w.t.Context(), w.someone(caller{role: models.RoleModerator}).ID,
		models.Target{Kind: kind, ID: n}, "Spam."); err != nil {
		w.t.Fatal(err)
	}
}

// removeAll requests the deletion of all content of the owner, by the lowest role that may, and returns the operation.
func (w *world) removeAll(owner account) int64 {
	w.t.Helper()
	by := models.RoleModerator
	if w.number(w.t, "SELECT role FROM users WHERE id=?", owner.ID) >= int64(models.RoleModerator) {
		by = models.RoleAdmin
	}
	operation, err := moderation.New(w.store).RemoveAll(w.t.Context(), w.someone(caller{role: by}).ID, owner.ID,
		"Spam.")
	require.NoError(w.t, err)
	return operation.ID
}

// prepared sets up what an operation needs to succeed on an object.
var prepared = map[string]func(w *world, owner account, id string){
	"restorePost": func(w *world, owner account, id string) {
		n, err := strconv.ParseInt(id, 10, 64)
		require.NoError(w.t, err)
		require.NoError(w.t, content.New(w.store).DeletePost(w.t.Context(), owner.ID, n))
	},
	"reinstatePost":    func(w *world, _ account, id string) { w.remove(models.KindPost, id) },
	"reinstateComment": func(w *world, _ account, id string) { w.remove(models.KindComment, id) },
	"unlockPost":       func(w *world, _ account, id string) { w.exec("UPDATE posts SET locked=1 WHERE id=?", id) },
	"unpinPost":        func(w *world, _ account, id string) { w.exec("UPDATE posts SET pinned=1 WHERE id=?", id) },
}

// linked are the operations whose body has the token of a link of that kind.
var linked = map[string]models.MailKind{
	"resetPassword": models.MailPasswordReset, "confirmEmail": models.MailEmailConfirm,
	"undoEmail": models.MailEmailChanged,
}

// armed are the operations on an account that has an app for codes.
var armed = []string{"removeTOTP", "replaceRecoveryCodes", "requestFactorReset", "cancelFactorReset"}

// addFactor adds to an account an app, whose codes nobody knows, in place of any other.
func (w *world) addFactor(owner account) {
	w.t.Helper()
	w.exec("REPLACE INTO totp_factors (user_id, seed, created_at, confirmed_at)"+
		" VALUES (?,'a seed',UTC_TIMESTAMP(),UTC_TIMESTAMP())", owner.ID)
}

// completeBody is body for an operation that needs something of the account in the database first.
func (w *world) completeBody(o operation, as account) obj {
	w.t.Helper()
	body := o.body(w.t)
	if kind, ok := linked[o.id]; ok {
		body["token"] = w.link(w.someone(caller{role: models.RoleUser}), kind)
	}
	switch o.id {
	case "confirmTOTP":
		seeds, err := accounts.NewSeeds([]byte(testKey))
		require.NoError(w.t, err)
		seed, err := accounts.New(w.store).BeginTOTP(w.t.Context(), seeds, as.ID, models.HashToken(as.Token))
		if err == nil { // a caller who may not confirm it cannot begin
			body["code"] = code(w.t, seed)
		}
	case "answerChallenge":
		owner := w.someone(caller{role: models.RoleUser})
		w.addFactor(owner)
		recovery, recoveryHash := models.NewRecoveryCode()
		w.exec("INSERT INTO recovery_codes (user_id, code_hash, created_at) VALUES (?,UNHEX(?),UTC_TIMESTAMP())",
			owner.ID, hex.EncodeToString(recoveryHash[:]))
		challenge, challengeHash := models.NewToken()
		w.exec("INSERT INTO login_challenges (challenge_hash, user_id, password_hash, expires_at)"+
			" VALUES (UNHEX(?),?,UNHEX(SHA2(?,256)),UTC_TIMESTAMP() + INTERVAL 1 HOUR)",
			hex.EncodeToString(challengeHash[:]), owner.ID, w.password)
		body["challenge"], body["code"] = challenge, recovery
	}
	return body
}

// bodies change the example of a request so that it can succeed.
var bodies = map[string]func(body obj){
	"changeUsername": func(body obj) { body["username"] = rand.Text() },
	"register": func(body obj) {
		name := rand.Text()
		body["username"], body["email"] = name, name+"@example.org"
	},
}

// operation is an operation of the contract, as a matrix sends it.
type operation struct {
	id, method, path string
	rule             models.Rule
	op               node
	k                *contract
	params           []node // those of the path are named as components
}

func operations(t *testing.T) []operation {
	t.Helper()
	k := mustSpec(t)
	var list []operation
	k.operations(func(method, path string, op node) {
		permission, _ := op.value["x-permission"].(string)
		parsed, ok := models.ParsePermission(permission)
		rule, _ := parsed.Rule()
		if !ok {
			t.Errorf("%s %s: there is no permission %q", method, path, permission)
		}
		o := operation{id: op.value["operationId"].(string), method: method, path: path, rule: rule, op: op, k: k}
		paths, _ := node{"", k.doc}.in("paths", path)
		for _, n := range []node{op, paths} {
			params, _ := n.value["parameters"].([]any)
			for i, p := range params {
				o.params = append(o.params, node{n.pointer + "/parameters/" + strconv.Itoa(i), p.(obj)})
			}
		}
		list = append(list, o)
	})
	slices.SortFunc(list, func(x, y operation) int { return strings.Compare(x.id, y.id) })
	return list
}

// object returns the name of the first path parameter; "" if there is none.
func (o operation) object() string {
	for _, p := range o.params {
		if o.k.follow(p).value["in"] == "path" {
			return o.component(p)
		}
	}
	return ""
}

// component returns the name of a parameter's component in the contract; its own name if it is not a component.
func (o operation) component(p node) string {
	if ref, ok := p.value["$ref"].(string); ok {
		return ref[strings.LastIndex(ref, "/")+1:]
	}
	return o.k.follow(p).value["name"].(string)
}

// hasOwner reports whether the object has an owner that matters.
func (o operation) hasOwner() bool {
	switch o.object() {
	case "", "file", "DraftKey", "FeedTag", "SitemapPage":
		return false
	}
	return true
}

// body returns the example of the request's body; nil without one.
func (o operation) body(t *testing.T) obj {
	t.Helper()
	schema, ok := o.k.at(o.op, "requestBody", "content", "application/json", "schema")
	if !ok {
		return nil
	}
	example, ok := schema.value["example"].(obj)
	if !ok {
		t.Fatalf("%s: the schema %s has no example", o.id, schema.pointer)
	}
	body := maps.Clone(example)
	if change := bodies[o.id]; change != nil {
		change(body)
	}
	return body
}

// request returns the path and body of a request by as for an object of the owner, with all required parameters.
func (o operation) request(w *world, as, owner account) (path string, headers []header) {
	w.t.Helper()
	if o.id == "deleteBannedUser" && owner != as { // a banned user sends no requests
		w.ban(owner)
	}
	if slices.Contains(armed, o.id) && owner.ID != 0 {
		w.addFactor(owner)
	}
	if o.id == "cancelFactorReset" {
		w.exec("REPLACE INTO factor_resets (user_id, actor_id, reason, requested_at, due_at)"+
			" VALUES (?,1,'Lost.',UTC_TIMESTAMP(),UTC_TIMESTAMP() + INTERVAL 1 DAY)", owner.ID)
	}
	path = o.path
	query := url.Values{}
	for _, p := range o.params {
		full := o.k.follow(p).value
		name := full["name"].(string)
		switch {
		case full["in"] == "path":
			create, ok := objects[o.component(p)]
			if !ok {
				w.t.Fatalf("%s: the matrix does not know how to make a %s: add it to objects", o.id, o.component(p))
			}
			id := create(w, owner)
			if prepare := prepared[o.id]; prepare != nil {
				prepare(w, owner, id)
			}
			path = strings.Replace(path, "{"+name+"}", id, 1)
		case name == "If-Match":
			headers = append(headers, header{name, "*"})
		case full["in"] == "query" && (full["required"] == true || o.id == "openStream"):
			switch example := full["example"].(type) {
			case []any:
				parts := make([]string, len(example))
				for i, part := range example {
					parts[i] = fmt.Sprint(part)
				}
				query.Set(name, strings.Join(parts, ","))
			case nil:
				w.t.Fatalf("%s: the parameter %s has no example", o.id, name)
			default:
				query.Set(name, fmt.Sprint(example))
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, headers
}

// ask sends the request and returns the answer's status. It closes a stream after its header. The answer must conform
// to the contract.
func (w *world) ask(o operation, as account, path string, body obj, headers []header) reply {
	w.t.Helper()
	if o.id != "openStream" {
		var sent any
		if body != nil {
			sent = body
		}
		if o.id == "uploadImage" {
			var form header
			sent, form = imageForm(w.t, "file", asPNG(w.t, 2, 2))
			headers = append(headers, form)
		}
		return w.send(w.t, as, o.method, path, sent, headers...)
	}
	ctx, leave := context.WithCancel(w.t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, o.method, w.url+path, nil)
	require.NoError(w.t, err)
	if as.Token != "" {
		req.Header.Set("Authorization", "Bearer "+as.Token)
	}
	resp, err := w.client.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	r := reply{Status: resp.StatusCode, Header: resp.Header}
	if r.Status >= 400 {
		if r.Body, err = io.ReadAll(resp.Body); err != nil {
			w.t.Fatal(err)
		}
	}
	return r
}

// sumsQuery returns the query of checksums. CHECKSUM TABLE would not do: it adds the checksums of rows, which are
// linear, so that the same change of an even number of rows can leave the sum as it was.
func (w *world) sumsQuery() string {
	w.t.Helper()
	rows, err := w.store.Pool().QueryContext(w.t.Context(), `
		SELECT table_name, column_name
		FROM information_schema.columns
		WHERE table_schema=DATABASE()
		ORDER BY table_name, ordinal_position`)
	require.NoError(w.t, err)
	defer rows.Close()
	columns := map[string][]string{}
	for rows.Next() {
		var table, column string
		require.NoError(w.t, rows.Scan(&table, &column))
		columns[table] = append(columns[table], "COALESCE(HEX("+column+"), '-')")
	}
	require.NoError(w.t, rows.Err())
	var parts []string
	for table, list := range columns {
		part := fmt.Sprintf(
			`SELECT '%s', COUNT(*),
				COALESCE(SUM(CAST(CONV(LEFT(SHA2(CONCAT_WS(',', %s), 256), 12), 16, 10) AS UNSIGNED)), 0)
			FROM %s`, table, strings.Join(list, ", "), table)
		if table == "settings" { // processes reserve ids and number their locks by themselves, whatever the requests do
			part += " WHERE name<>'ids' AND name NOT LIKE 'fence%'"
		}
		parts = append(parts, part)
	}
	require.NotEmpty(w.t, parts)
	return strings.Join(parts, " UNION ALL ")
}

// checksums returns a checksum of all rows, by table.
func (w *world) checksums() map[string]string {
	w.t.Helper()
	if w.sums == "" {
		w.sums = w.sumsQuery()
	}
	rows, err := w.store.Pool().QueryContext(w.t.Context(), w.sums)
	require.NoError(w.t, err)
	defer rows.Close()
	sums := map[string]string{}
	for rows.Next() {
		var table, count, sum string
		require.NoError(w.t, rows.Scan(&table, &count, &sum))
		sums[table] = count + " rows, " + sum
	}
	require.NoError(w.t, rows.Err())
	return sums
}

// changedTables returns the names of the tables that differ.
func changedTables(before, after map[string]string) []string {
	var changed []string
	for table, sum := range before {
		if after[table] != sum {
			changed = append(changed, table)
		}
	}
	slices.Sort(changed)
	return changed
}

// cell is a caller, its relation to the owner of the object, and the verdict.
type cell struct {
	by   caller
	on   relation
	want int
}

// objectsOf holds the object of an operation for each relation, and the request to it.
type objectsOf map[relation]struct {
	owner   account
	path    string
	headers []header
}

// prepare creates the object of a cell, and returns a function that sends the request and checks it against the
// verdict. Cells that change nothing share their objects in same, and their callers. A cell with no same has its own.
func (w *world) prepare(o operation, c cell, owners map[models.Role]account, same objectsOf) (ask func()) {
	w.t.Helper()
	var as account
	switch {
	case same != nil:
		as = w.lasting(c.by)
	case c.by.role != models.RoleAnonymous:
		as = w.someone(c.by)
	}
	object, made := same[c.on]
	if !made || c.on.own {
		object.owner = as
		if !c.on.own {
			if object.owner = owners[c.on.role]; o.rule.On == models.Lower { // its role may differ afterwards
				object.owner = w.someone(caller{role: c.on.role})
			}
		}
		object.path, object.headers = o.request(w, as, object.owner)
		if same != nil {
			same[c.on] = object
		}
	}
	body := w.completeBody(o, as)
	return func() {
		w.t.Helper()
		r := w.ask(o, as, object.path, body, object.headers)
		if (c.want == 0) != (r.Status < 400) || c.want != 0 && r.Status != c.want {
			w.t.Errorf("%s %s (%s) by %s on %s object: %.300s, but the permission says %d", o.method, o.path, o.id,
				c.by.name, c.on.name, r, c.want)
		}
	}
}

// TestMatrix_everyCellFollowsThePermissions sends every operation of the contract as every caller, for every relation
// to the owner. Allowed requests must succeed, and all others must be refused and change nothing. Some operations share
// a world: comparing its tables takes longer, the more objects it has.
func TestMatrix_everyCellFollowsThePermissions(t *testing.T) {
	t.Parallel()
	var cells atomic.Int64
	t.Cleanup(func() { t.Logf("%d cells", cells.Load()) })
	for part := range slices.Chunk(operations(t), 8) {
		t.Run("from "+part[0].id, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			owners := map[models.Role]account{}
			for _, role := range []models.Role{models.RoleUser, models.RoleModerator, models.RoleAdmin} {
				owners[role] = w.someone(caller{role: role})
			}
			for _, o := range part {
				cells.Add(int64(w.sendEveryCell(o, owners)))
			}
		})
	}
}

// sendEveryCell sends an operation as every caller, and returns how many cells it has.
func (w *world) sendEveryCell(o operation, owners map[models.Role]account) int {
	w.t.Helper()
	var refused, answered []cell // refused ones must change nothing
	for _, by := range callers {
		cases := relations
		switch {
		case by.role == models.RoleAnonymous:
			cases = relations[1:2]
		// The body names its objects, and each has a result of its own.
		case !o.hasOwner() && o.rule.On == models.Others:
			cases = relations[1:2]
		case !o.hasOwner():
			cases = relations[:1]
		case o.rule.On != models.Lower && o.rule.Least < models.RoleModerator:
			cases = relations[:2] // the rule does not depend on the owner's role
		}
		for _, on := range cases {
			if c := (cell{by, on, verdict(o.rule, by, on)}); c.want != 0 && o.method != http.MethodGet {
				refused = append(refused, c)
			} else {
				answered = append(answered, c)
			}
		}
	}
	same := objectsOf{}
	asks := make([]func(), len(refused))
	for i, c := range refused {
		asks[i] = w.prepare(o, c, owners, same)
	}
	before := w.checksums()
	for i, ask := range asks {
		ask()
		after := w.checksums()
		if changed := changedTables(before, after); len(changed) > 0 {
			w.t.Errorf("%s %s (%s) by %s on %s object is refused and changes %v", o.method, o.path, o.id,
				refused[i].by.name, refused[i].on.name, changed)
		}
		before = after
	}
	if o.method != http.MethodGet {
		same = nil // these change what they are about
	}
	for _, c := range answered {
		w.prepare(o, c, owners, same)()
	}
	return len(refused) + len(answered)
}

// privileged are members that clients must not set: of any object, and of some.
var privileged = obj{
	"id": 1, "author": obj{"id": 1}, "author_id": 1, "user_id": 1, "user": obj{"id": 1}, "owner_id": 1, "role": "admin",
	"roles":    []string{"admin"},
	"is_admin": true, "admin": true, "status": "normal", "version": 7, "likes_count": 1_000_000,
	"comments_count": 1_000_000, "replies_count": 1_000_000,
	"followers_count": 1_000_000, "hot_score": 9_000_000_000, "liked": true, "locked": false, "pinned": true,
	"created_at": "2000-01-01T00:00:00Z",
	"updated_at": "2000-01-01T00:00:00Z", "deleted_at": nil, "edited_by": 1, "banned_until": nil, "ban_reason": "",
	"password_hash": "", "email_verified": true,
	"is_token": false, "expires_at": "2999-01-01T00:00:00Z", "token": "x", "token_hash": "x", "post_id": 1, "depth": 0,
	"Title": "case", "__proto__": obj{"role": "admin"},
}

// injections yields the body with an added privileged member, once for every object in it and every such member that
// the object does not have, and the name of the member.
func injections(t *testing.T, body obj) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(at obj)
	walk = func(at obj) {
		for name, value := range privileged {
			if _, is := at[name]; is {
				continue
			}
			at[name] = value
			text, err := json.Marshal(body)
			require.NoError(t, err)
			out[string(text)] = name
			delete(at, name)
		}
		for _, value := range at {
			list, _ := value.([]any)
			for _, item := range append(list, value) {
				if inner, ok := item.(obj); ok {
					walk(inner)
				}
			}
		}
	}
	walk(body)
	return out
}

// TestMassAssignment_changesNothing sends every body of the contract with members that clients must not set. Each is
// refused by name, and the same body without it is accepted.
func TestMassAssignment_changesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tried := 0
	for _, o := range operations(t) {
		as := w.someone(caller{role: max(o.rule.Least, models.RoleUser)})
		body := w.completeBody(o, as)
		if body == nil {
			continue
		}
		owner := as
		if o.rule.On == models.Others || o.rule.On == models.Lower {
			owner = w.someone(caller{role: models.RoleUser})
		}
		path, headers := o.request(w, as, owner)
		known, _ := o.k.at(o.op, "requestBody", "content", "application/json", "schema")
		before := w.checksums()
		for sent, name := range injections(t, body) {
			if properties, _ := known.value["properties"].(obj); properties[name] != nil {
				continue // not in the example, but clients may set it
			}
			tried++
			w.refusedField(t, 422, "invalid", name, as, o.method, path, sent, headers...)
		}
		if changed := changedTables(before, w.checksums()); len(changed) > 0 {
			t.Errorf("%s: mass assignment changed %v", o.id, changed)
		}
		if r := w.ask(o, as, path, body, headers); r.Status >= 400 {
			t.Errorf("%s: without it, the same body is answered with %s", o.id, r)
		}
	}
	t.Logf("%d bodies", tried)
}
