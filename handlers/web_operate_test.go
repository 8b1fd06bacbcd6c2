//go:build web

package handlers_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

var operate = []string{"/operate", "/operate?window=day", "/operate/like", "/operate/dead-letters",
	"/operate/dead-letters?status=resolved", "/operate/reconcile", "/operate/webhooks"}

const letterNobodyReads = `
	INSERT INTO dead_letters (digest, shard, epoch, seq, topic, topic_partition, topic_offset, payload, error,
		created_at)
	VALUES (UNHEX(SHA2('a',256)), 7, 1, 7, 'likewise.likes', 7, 812, 'likes 1795176000123 p7 <b>*42', 'unknown word',
		NOW(3))`

// To others than admins, the desk does not exist.
func TestWebOperate_isForAdminsAlone(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	admin := s.promoted(t, s.account(t), models.RoleAdmin)
	id := s.publish(t, admin, "A post")
	for _, path := range append(operate, fmt.Sprintf("/operate/like?post=%d", id)) {
		for _, other := range []account{s.account(t), s.moderator(t)} {
			assert.Equal(t, http.StatusNotFound, s.as(t, other).get(path).status, path)
		}
		assert.Equal(t, http.StatusUnauthorized, s.guest(t).get(path).status, path)
		s.requests()
		s.as(t, admin).see(path).wellFormed()
		assert.LessOrEqual(t, len(s.requests()), 3, path)
	}
	refused := s.as(t, s.moderator(t)).post("/operate/reconcile", url.Values{"kind": {"post"}, "target": {"1"}})
	assert.Equal(t, http.StatusNotFound, refused.status)
}

func TestWebOperate_watchesALike(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	admin := s.promoted(t, s.account(t), models.RoleAdmin)
	id := s.publish(t, s.account(t), "Something to like")
	v := s.as(t, admin)
	at := fmt.Sprintf("/operate/like?post=%d", id)
	v.see(at).has("Something to like").has("0 likes").has("Redis knows of no like")
	d := v.see(at).done("/operate/like", "liked", "true").has("1 like").has("The API answered in").
		has("Take your like back")
	require.Equal(t, "/operate/like", d.url.Path)
	require.Eventually(t, func() bool { return strings.Contains(v.see(at).text(), "MySQL has it yes") }, 20*time.Second,
		50*time.Millisecond)
	v.see(at).done("/operate/like", "liked", "false").has("0 likes").has("Like it as yourself")
	missing := v.get("/operate/like?post=999999")
	require.Equal(t, http.StatusNotFound, missing.status)
	missing.has("Number of a post").wellFormed()
}

func TestWebOperate_resolvesDeadLetters(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	admin := s.promoted(t, s.account(t), models.RoleAdmin)
	s.exec(t, letterNobodyReads)
	v := s.as(t, admin)
	v.see("/operate").has("1 dead letter waits for you.")
	d := v.see("/operate/dead-letters").has("likes 1795176000123 p7 <b>*42").has("unknown word")
	d.wellFormed()
	form := "/operate/dead-letters/1#letter-1"
	failed := d.submit(form, "do", "discard", "reason", " ")
	require.Equal(t, http.StatusUnprocessableEntity, failed.status)
	failed.has("reason must not be empty")
	failed = d.submit(form, "do", "retry", "reason", "It may be readable now.")
	require.GreaterOrEqual(t, failed.status, 400, "nobody can read it")
	assert.Contains(t, failed.body, `value="It may be readable now."`)
	d.done(form, "do", "discard", "reason", "Nobody can read it.").has("The letter was discarded.").
		has("No letter waits")
	v.see("/operate/dead-letters?status=resolved").has("Discarded").hasNot("Send it again")
}

func TestWebOperate_reconciles(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	admin := s.promoted(t, s.account(t), models.RoleAdmin)
	id := s.publish(t, admin, "A post")
	s.exec(t, "UPDATE posts SET likes_count=3 WHERE id=?", id)
	v := s.as(t, admin)
	shown := v.post("/operate/reconcile", url.Values{"kind": {"post"}, "target": {fmt.Sprint(id)}})
	shown.has("1 difference").has("likes_count is 3 and there are 0 rows").has("Nothing was changed.")
	shown.wellFormed()
	require.EqualValues(t, 3, s.number(t, "SELECT likes_count FROM posts WHERE id=?", id))
	form := url.Values{"kind": {"post"}, "target": {fmt.Sprint(id)}, "do": {"repair"}}
	without := v.post("/operate/reconcile", form)
	require.Equal(t, http.StatusUnprocessableEntity, without.status)
	form.Set("reason", "It was changed by hand.")
	form.Set("key", "repair it once, please")
	v.post("/operate/reconcile", form).has("repaired").has("The repair has ended.")
	require.Zero(t, s.number(t, "SELECT likes_count FROM posts WHERE id=?", id))

	shard := v.post("/operate/reconcile", url.Values{"shard": {"0"}})
	shard.has("Shard 0: no differences")
	for strings.Contains(shard.body, "Compare the next stretch") {
		cursor := ""
		for _, n := range shard.elements("input") {
			if name, _ := attribute(n, "name"); name == "cursor" {
				cursor, _ = attribute(n, "value")
			}
		}
		shard = v.post("/operate/reconcile", url.Values{"shard": {"0"}, "cursor": {cursor}})
	}
	shard.has("That was the end of the shard.")
	wrong := v.post("/operate/reconcile", url.Values{"shard": {"1000"}})
	require.Equal(t, http.StatusUnprocessableEntity, wrong.status)
	wrong.has("shard")
}

func TestWebOperate_managesWebhooks(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	admin := s.promoted(t, s.account(t), models.RoleAdmin)
	v := s.as(t, admin)
	list := v.see("/operate/webhooks").has("There are no webhooks.")
	failed := list.submit("/operate/webhooks", "url", "ftp://example.org", "event", "post.created")
	require.Equal(t, http.StatusUnprocessableEntity, failed.status)
	assert.Contains(t, failed.body, `value="ftp://example.org"`)
	made := list.done("/operate/webhooks", "url", "https://hooks.example.org/in", "event", "post.created").has("whsec_")
	made.wellFormed()
	path := "/operate/webhooks/1"
	list.submit("/operate/webhooks", "url", "https://hooks.example.org/in", "event", "post.created").
		hasNot("whsec_").has("make a new one")
	v.see(path).hasNot("whsec_")
	v.see("/operate/webhooks").has("https://hooks.example.org/in").hasNot("whsec_")

	v.see(path).done(path + "/rotate").has("whsec_").has("The previous secret signs too")
	v.see(path).done(path + "/end-previous").has("The previous secret signs no longer.")
	v.see(path).done(path + "/ping").has("A ping is on its way.").has("waiting")
	s.exec(t, "UPDATE webhook_events SET state=2, ended_at=NOW(3)")
	v.see(path).done(path + "/replay/1").has("It is sent again.")

	stale := v.see(path).form(path)
	v.see(path).done(path, "url", "https://hooks.example.org/out", "event", "post.deleted").has("Saved.")
	stale.Set("url", "https://hooks.example.org/third")
	conflict := v.post(path, stale)
	require.Equal(t, http.StatusPreconditionFailed, conflict.status)
	assert.Contains(t, conflict.body, `value="https://hooks.example.org/third"`)
	conflict.has("https://hooks.example.org/out")
	off := v.see(path).form(path)
	off.Del("active")
	v.post(path, off).has("off")
	v.see(path).done(path + "/delete").has("The webhook was deleted.")
	require.Equal(t, http.StatusNotFound, v.get(path).status)
}

// A like is followed in the page, and the state of the pipeline is refreshed.
func TestWebBrowser_operates(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	admin := s.promoted(t, s.account(t), models.RoleAdmin)
	id := s.publish(t, admin, "A post")
	at := fmt.Sprintf("/posts/%d/like", id)
	s.must(t, 200, s.account(t), "PUT", "/v1"+at, nil)
	b := s.chrome(t, admin)
	b.open(fmt.Sprintf("/operate/like?post=%d", id))
	b.run("window.here = true; document.querySelector('[data-travel] button').click()")
	b.awaits("document.querySelector('[data-travel] button').value === 'false'")
	b.awaits("document.querySelector('[data-step=mysql] [data-done]').textContent === 'yes'")
	assert.True(t, js[bool](b, "window.here && /\\d ms/.test(document.querySelector('[data-answer]').textContent)"))
	for _, step := range []string{"kafka", "mysql"} {
		number := "/^\\d+$/.test(document.querySelector('[data-step=" + step + "] [data-to]').textContent)"
		assert.True(t, js[bool](b, number), step)
	}
	b.run("document.querySelector('[data-travel] button').click()")
	b.awaits("document.querySelector('[data-travel] button').value === 'true'")

	b.open("/operate")
	s.exec(t, letterNobodyReads)
	b.run("window.here = true; document.dispatchEvent(new Event('visibilitychange'))")
	b.awaits("document.querySelector('.findings a')?.textContent === '1 dead letter waits for you.'")
	assert.True(t, js[bool](b, "window.here"), "the page was not loaded again")
}
