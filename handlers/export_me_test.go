package handlers_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/privacy"
	"likewise/models/stock"
	"likewise/workers"
)

// archive is an archive as its user reads it: the rows of each file, by name.
type archive struct {
	text  string // of all files
	files map[string][]obj
	obj   // the manifest
}

func readArchive(t testing.TB, body []byte) archive {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	a, files := archive{files: map[string][]obj{}}, tar.NewReader(zip)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text, err := io.ReadAll(files)
		require.NoError(t, err)
		name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "likewise-export/"), ".json")
		a.text += string(text)
		if name == "manifest" {
			err = json.Unmarshal(text, &a.obj)
		} else {
			rows := []obj{}
			err = json.Unmarshal(text, &rows)
			a.files[name] = rows
		}
		if err != nil {
			t.Fatalf("%s: %v in %.200s", header.Name, err, text)
		}
	}
	if rest, err := io.ReadAll(zip); err != nil || bytes.Trim(rest, "\x00") != nil &&
		len(bytes.Trim(rest, "\x00")) > 0 {
		t.Fatalf("after the archive: %d bytes, %v", len(rest), err)
	}
	return a
}

// build builds all requested exports.
func (a *api) build(t testing.TB) {
	t.Helper()
	if _, _, err := workers.NewExporter(privacy.New(a.store)).Export(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestExportMe_hasAllOfTheUserAndNothingPrivateOfOthers(t *testing.T) {
	t.Parallel()
	kept := imagesIn(t, t.TempDir())
	a := newAPI(t, modes[0], withImages(kept), withMail)
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
	a.exec(t, "DELETE FROM mails")
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": "difference engine"}, header{"User-Agent", "Analytical/1"}))
	ada := account{ID: in.User.ID, Token: in.Token}
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "bob", "email": "bob@example.org", "password": "battery staple"})
	bobIn := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "bob", "password": "battery staple"}))
	bob, carol := account{ID: bobIn.User.ID, Token: bobIn.Token}, a.account(t)

	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"bio": "Notes on the engine <&>"})
	a.must(t, 202, ada, "PUT", "/v1/me/email", obj{"email": "lovelace@example.org"})
	p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts",
		obj{"title": "First title", "content": "First text.", "tags": []string{"go", "maths"}}))
	a.must(t, 200, ada, "PATCH", pathOf(p), obj{"content": "Second text."}, header{"If-Match", `"v0"`})
	gone := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts",
		obj{"title": "Deleted title", "content": "Deleted text."}))
	a.must(t, 204, ada, "DELETE", pathOf(gone), nil)
	theirs := read[post](t, a.must(t, 201, bob, "POST", "/v1/posts",
		obj{"title": "Bob's title", "content": "Bob's text."}))
	mine := read[comment](t, a.must(t, 201, ada, "POST", pathOf(theirs)+"/comments", obj{"content": "Ada's comment."}))
	a.must(t, 200, ada, "PATCH", fmt.Sprintf("/v1/comments/%d", mine.ID), obj{"content": "Ada's new comment."},
		header{"If-Match", `"v0"`})
	a.must(t, 201, bob, "POST", pathOf(p)+"/comments", obj{"content": "Bob's comment for @ada."}) // notifies
	a.must(t, 200, ada, "PUT", pathOf(theirs)+"/like", nil)
	a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/comments/%d/like", mine.ID), nil)
	a.must(t, 200, ada, "PUT", pathOf(theirs)+"/bookmark", nil)
	a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/users/%d/follow", bob.ID), nil)
	a.must(t, 200, ada, "PUT", pathOf(theirs)+"/read", obj{})
	a.must(t, 200, ada, "PUT", pathOf(theirs)+"/subscription", obj{"level": "muted"})
	a.exec(t, `
		INSERT INTO totp_factors (user_id, seed, created_at, confirmed_at)
		VALUES (?,'a secret',UTC_TIMESTAMP(),UTC_TIMESTAMP())`, ada.ID)
	a.must(t, 201, ada, "PUT", "/v1/me/drafts/comment", obj{"content": "Ada's draft.", "post_id": theirs.ID})
	picture := addImage(t, a.store, kept, ada.ID)
	addImage(t, a.store, kept, bob.ID)
	a.must(t, 200, bob, "PUT", pathOf(p)+"/subscription", obj{"level": "following"})
	a.must(t, 201, bob, "PUT", "/v1/me/drafts/post", obj{"title": "Bob's secret draft"})
	a.exec(t, "INSERT INTO former_usernames (user_id, username, changed_at) VALUES (?,'ada_b',NOW()),(?,'bob_b',NOW())",
		ada.ID, bob.ID)
	a.exec(t, "INSERT INTO blocks (user_id, blocked_id) VALUES (?,?),(?,?)", ada.ID, carol.ID, carol.ID, ada.ID)
	a.must(t, 201, ada, "POST", "/v1/reports",
		obj{"target_type": "post", "target_id": theirs.ID, "reason": "spam", "detail": "Ada's detail."})
	a.must(t, 201, bob, "POST", "/v1/reports",
		obj{"target_type": "post", "target_id": p.ID, "reason": "abuse", "detail": "Bob's secret detail."})
	a.must(t, 200, bob, "PUT", pathOf(p)+"/bookmark", nil)
	a.must(t, 202, ada, "POST", pathOf(p)+"/revisions/0/redaction", obj{"reason": "It has Ada's address."})
	a.must(t, 202, bob, "POST", pathOf(theirs)+"/revisions/0/redaction", obj{"reason": "It has Bob's secret."})
	made := read[struct{ Token string }](t,
		a.must(t, 201, ada, "POST", "/v1/me/tokens", obj{"name": "Ada's bot", "scopes": []string{"read", "write"}}))
	drop, err := stock.New(a.store).CreateDrop(t.Context(), ada.ID, p.ID, models.DropSettings{Title: "Ada's tickets",
		Stock: 3})
	require.NoError(t, err)
	a.exec(t, `
		INSERT INTO claims (drop_id, user_id, id, state, created_at)
		VALUES (?,?,77,2,NOW(3)), (?,?,78,2,NOW(3))`, drop.ID, ada.ID, drop.ID, bob.ID)
	for action, reason := range map[string]string{"user.ban": "Told to Ada.", "user.unban": "Not told 1.",
		"user.void_likes": "Not told 2."} {
		a.exec(t, `
			INSERT INTO moderation_log (actor_id, action, target_type, target_id, reason, request_id, created_at)
			VALUES (?,?,'user',?,?,'',NOW(3))`, carol.ID, action, ada.ID, reason)
	}

	r := a.must(t, 202, ada, "GET", "/v1/me/export", nil)
	if r.Header.Get("Retry-After") == "" || !strings.Contains(string(r.Body), `"building"`) {
		t.Errorf("the first request is answered with %s", r)
	}
	a.must(t, 202, ada, "GET", "/v1/me/export", nil)
	a.build(t)
	r = a.must(t, 200, ada, "GET", "/v1/me/export", nil)
	got := readArchive(t, r.Body)
	if got.obj["complete"] != true || got.obj["user_id"] != float64(ada.ID) ||
		len(got.files) != len(privacy.ExportSections()) {
		t.Errorf("the manifest is %v, with %d files", got.obj, len(got.files))
	}
	for _, section := range privacy.ExportSections() {
		want := map[string]int{"posts": 2, "sessions": 2, "account_acts": 2}[section]
		if rows := got.files[section]; len(rows) != max(want, 1) && section != "notifications" &&
			section != "security_events" || len(rows) == 0 {
			t.Errorf("%s has %v", section, rows)
		}
	}
	for section, want := range map[string]obj{
		"profile": {"username": "ada", "email": "ada@example.org", "role": "user",
			"bio": "Notes on the engine <&>"},
		"posts": {"id": float64(p.ID), "content": "Second text.", "tags": []any{"go", "maths"},
			"status": "normal"},
		"post_revisions": {"post_id": float64(p.ID), "version": 0.0, "title": "First title",
			"content": "First text."},
		"comments":          {"id": float64(mine.ID), "content": "Ada's new comment.", "post_id": float64(theirs.ID)},
		"comment_revisions": {"comment_id": float64(mine.ID), "content": "Ada's comment."},
		"security_events":   {"user_agent": "Analytical/1"},
		"post_likes":        {"post_id": float64(theirs.ID)},
		"comment_likes":     {"comment_id": float64(mine.ID)},
		"bookmarks":         {"post_id": float64(theirs.ID)},
		"read_marks":        {"post_id": float64(theirs.ID), "comment_id": float64(mine.ID)},
		"subscriptions":     {"post_id": float64(theirs.ID), "level": "muted"},
		"drafts":            {"key": "comment", "content": "Ada's draft.", "post_id": float64(theirs.ID)},
		"images":            {"id": picture.Name, "type": "image/png", "width": 600.0},
		"follows":           {"user_id": float64(bob.ID), "username": "bob"},
		"blocks":            {"user_id": float64(carol.ID)},
		"sessions":          {"user_agent": "Analytical/1"},
		"api_tokens":        {"name": "Ada's bot", "scopes": []any{"read", "write"}},
		"second_factors":    {"kind": "totp", "recovery_codes_left": 0.0},
		"reports":           {"target_id": float64(theirs.ID), "detail": "Ada's detail.", "reason": "spam"},
		"redactions": {"target_type": "post", "target_id": float64(p.ID), "version": 0.0,
			"reason": "It has Ada's address.", "outcome": nil},
		"notifications": {"actor_id": float64(bob.ID), "post_id": float64(p.ID)},
		"account_acts":  {"action": "user.ban", "reason": "Told to Ada."},
		"mails":         {"kind": "email_confirm", "address": "lovelace@example.org", "outcome": ""},
		"drops":         {"id": float64(drop.ID), "title": "Ada's tickets", "stock": 3.0},
		"claims":        {"id": "77", "drop_id": float64(drop.ID), "state": "confirmed"},
	} {
		if !slices.ContainsFunc(got.files[section], func(row obj) bool {
			for key, value := range want {
				if fmt.Sprint(row[key]) != fmt.Sprint(value) {
					return false
				}
			}
			return true
		}) {
			t.Errorf("%s has %v, want %v among it", section, got.files[section], want)
		}
	}
	if !strings.Contains(got.text, "Deleted text.") {
		t.Error("deleted content is missing")
	}
	// Behind the id.
	hash := func(token string) string { h := models.HashToken(token); return hex.EncodeToString(h[:])[17:] }
	for _, secret := range []string{"bob@", "Bob's secret", "Bob's text", "Bob's comment", "Not told", "argon2",
		ada.Token, made.Token, hash(ada.Token), hash(made.Token), `"carol`} {
		if strings.Contains(got.text, secret) {
			t.Errorf("%q is in the archive", secret)
		}
	}

	// The archive is private: other users receive their own, and API tokens are refused.
	a.must(t, 202, bob, "GET", "/v1/me/export", nil)
	a.build(t)
	if got := readArchive(t, a.must(t, 200, bob, "GET", "/v1/me/export",
		nil).Body); got.obj["user_id"] != float64(bob.ID) || strings.Contains(got.text, "Ada's") ||
		strings.Contains(got.text, "ada@") {
		t.Errorf("Bob got %v", got.obj)
	}
	a.refused(t, 401, "unauthorized", account{}, "GET", "/v1/me/export", nil)
	a.refused(t, 403, "forbidden", account{Token: made.Token}, "GET", "/v1/me/export", nil)
	a.must(t, 200, ada, "HEAD", "/v1/me/export", nil)
}

func TestExportMe_expiresAndGoesWithTheAccount(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": "difference engine"}))
	ada := account{ID: in.User.ID, Token: in.Token}
	a.must(t, 202, ada, "GET", "/v1/me/export", nil)
	a.build(t)
	first := a.must(t, 200, ada, "GET", "/v1/me/export", nil)
	a.newPost(t, ada)
	a.build(t)
	if again := a.must(t, 200, ada, "GET", "/v1/me/export", nil); !bytes.Equal(again.Body, first.Body) {
		t.Error("a second archive was built on the same day")
	}
	a.exec(t, "UPDATE exports SET expires_at=? ", time.Now().UTC().Add(-time.Second))
	a.must(t, 202, ada, "GET", "/v1/me/export", nil)
	a.build(t)
	if n := a.number(t, `
		SELECT COUNT(*)
		FROM export_chunks c
		LEFT JOIN exports e ON e.id=c.export_id AND e.user_id IS NOT NULL
		WHERE e.id IS NULL`); n != 0 {
		t.Errorf("%d chunks of expired archives are left", n)
	}
	if posts := readArchive(t, a.must(t, 200, ada, "GET", "/v1/me/export", nil).Body).files["posts"]; len(posts) != 1 {
		t.Errorf("the new archive has the posts %v", posts)
	}

	// The session is cached.
	a.exec(t, "UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.' WHERE id=?", ada.ID)
	a.refused(t, 401, "unauthorized", ada, "GET", "/v1/me/export", nil)
	a.exec(t, "UPDATE users SET banned_until=NULL WHERE id=?", ada.ID)
	a.must(t, 204, ada, "DELETE", "/v1/me", obj{"password": "difference engine"})
	if n := a.number(t, "SELECT COUNT(*) FROM exports WHERE user_id IS NOT NULL"); n != 0 {
		t.Errorf("%d exports outlive the account", n)
	}
	a.build(t)
	if n := a.number(t, "SELECT (SELECT COUNT(*) FROM exports)+(SELECT COUNT(*) FROM export_chunks)"); n != 0 {
		t.Errorf("%d rows of exports are left", n)
	}
	if _, err := privacy.New(a.store).RequestExport(t.Context(),
		ada.ID); models.ErrorCode(err) != models.CodeUnauthorized {
		t.Errorf("a deleted account asked for an export: %v", err)
	}
}

// TestExportMe_holdsLittleWhileItIsSent sends an archive of some 12 MB to a client that does not read it. Under the
// race detector the archive has 7 MB, still more than the buffers of a connection hold.
func TestExportMe_holdsLittleWhileItIsSent(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	posts := testkit.Volume(250, 150)
	noise := make([]byte, 45_000) // 60,000 characters that cannot be compressed further
	for i := range posts {
		rand.Read(noise)
		a.exec(t, "INSERT INTO posts (user_id, title, content) VALUES (?,?,?)", ada.ID, fmt.Sprint("Post ", i),
			base64.StdEncoding.EncodeToString(noise))
	}
	a.must(t, 202, ada, "GET", "/v1/me/export", nil)
	a.build(t)
	size, largest := a.number(t, "SELECT size FROM exports"), a.number(t, "SELECT MAX(LENGTH(data)) FROM export_chunks")
	t.Logf("%d bytes in %d chunks of at most %d", size, a.number(t, "SELECT COUNT(*) FROM export_chunks"), largest)
	stored := a.number(t, "SELECT SUM(LENGTH(data)) FROM export_chunks")
	if size < int64(posts)*45_000 || largest > 1<<19 || size != stored {
		t.Errorf("the archive has %d bytes, its largest chunk %d", size, largest)
	}

	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(256<<10))
	fmt.Fprintf(conn, "GET /v1/me/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", ada.Token)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1024), nil)
	if err != nil || resp.StatusCode != http.StatusOK || resp.ContentLength != size {
		t.Fatalf("%+v, %v", resp, err)
	}
	defer resp.Body.Close()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		return a.store.Pool().Stats().InUse == 0, "an archive that nobody reads holds a connection of the pool"
	})
	a.refused(t, 429, "rate_limited", ada, "GET", "/v1/me/export", nil)
	body, err := io.ReadAll(resp.Body)
	if err != nil || int64(len(body)) != size {
		t.Fatalf("%d bytes of %d came: %v", len(body), size, err)
	}
	seen := map[any]bool{}
	got := readArchive(t, body)
	for name, rows := range got.files {
		for _, row := range rows {
			if strings.HasPrefix(name, "posts") {
				seen[row["id"]] = true
			}
		}
	}
	if len(seen) != posts || got.obj["complete"] != true {
		t.Errorf("%d posts are in the archive, want %d; %v", len(seen), posts, got.obj)
	}
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		r := a.send(t, ada, "HEAD", "/v1/me/export", nil)
		return r.Status == 200, "the download is not over: " + r.String()
	})
}
