//go:build web

package handlers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// pageChecks is the folder in which `make test-web` has installed axe-core, the Nu HTML checker and Lighthouse.
func pageChecks(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("PAGE_CHECKS")
	require.NotEmpty(t, folder, "PAGE_CHECKS is not set: run make test-web")
	return filepath.Join(folder, "node_modules")
}

// town is a forum on which every page has something to show.
type town struct {
	*forum

	ada, grace account // grace is an admin
	paths      []string
	desks      []string
}

const wordy = "A text with *emphasis*, `code`, [a link](https://example.com) and @%s.\n\n> A quotation.\n\n" +
	"- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" +
	"```\nsome code that is far too wide for a telephone, and has to be broken there\n```\n"

func newTown(t *testing.T) *town {
	t.Helper()
	s := newForum(t)
	town := &town{forum: s, ada: s.account(t), grace: s.promoted(t, s.account(t), models.RoleAdmin)}
	bob := s.account(t)
	var post struct{ ID int64 }
	s.must(t, 201, town.ada, "POST", "/v1/posts", obj{
		"title":   "如何 كيف Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
		"content": fmt.Sprintf(wordy, bob.Name), "tags": []string{"go", "数据库", "a-rather-long-tag-of-a-forum"},
	}).into(t, &post)
	second := s.publish(t, bob, "Another post")
	parent := s.say(t, bob, post.ID, nil, "Hello @"+town.ada.Name)
	first := parent
	for range 7 {
		parent = s.say(t, town.ada, post.ID, parent, fmt.Sprintf(wordy, town.ada.Name))
	}
	gone := s.say(t, bob, post.ID, first, "Gone soon.")
	s.say(t, town.ada, post.ID, gone, "An answer to what is gone.")
	s.must(t, 204, bob, "DELETE", fmt.Sprintf("/v1/comments/%d", gone), nil)
	s.must(t, 200, bob, "PUT", fmt.Sprintf("/v1/posts/%d/like", post.ID), nil)
	s.must(t, 200, town.ada, "PUT", fmt.Sprintf("/v1/posts/%d/like", second), nil)
	s.must(t, 200, town.ada, "PUT", fmt.Sprintf("/v1/posts/%d/bookmark", second), nil)
	s.must(t, 200, town.ada, "PUT", fmt.Sprintf("/v1/users/%d/follow", bob.ID), nil)
	s.must(t, 200, town.ada, "PUT", fmt.Sprintf("/v1/users/%d/block", s.account(t).ID), nil)
	s.must(t, 201, bob, "POST", "/v1/reports", obj{"target_type": "post", "target_id": post.ID, "reason": "spam"})
	s.must(t, 201, town.ada, "POST", "/v1/reports", obj{"target_type": "post", "target_id": second, "reason": "abuse"})
	s.must(t, 201, town.ada, "POST", "/v1/me/tokens", obj{"name": "bot", "scopes": []string{"read"}})
	s.must(t, 201, town.ada, "PUT", "/v1/me/drafts/post", obj{"title": "Unfinished", "content": "Half a"})
	s.must(t, 200, town.ada, "PATCH", fmt.Sprintf("/v1/posts/%d", post.ID), obj{"content": "Changed. " + wordy[:40]},
		header{"If-Match", `"v0"`})
	var drop struct{ ID int64 }
	s.must(t, 201, town.ada, "POST", fmt.Sprintf("/v1/posts/%d/drops", post.ID), obj{"title": "A ticket", "stock": 3}).
		into(t, &drop)
	s.must(t, 201, town.ada, "POST", fmt.Sprintf("/v1/drops/%d/claims", drop.ID), nil)
	at, user := fmt.Sprintf("/posts/%d", post.ID), fmt.Sprintf("/users/%d", town.ada.ID)
	comment := fmt.Sprintf("/comments/%d", first)
	town.paths = []string{
		"/", "/top", "/tags", "/tags/go", "/search", "/search?q=text", "/search?q=hello&in=comments", "/help",
		"/nothing", at, at + "/all", at + "/likes", at + "/revisions?version=0", comment, comment + "/replies", user,
		user + "/comments", user + "/following", "/feed", "/unread", "/bookmarks", "/likes", "/notifications",
		"/claims", "/drafts", "/reports",
		"/settings", "/settings/sessions", "/settings/tokens", "/settings/blocks", "/settings/data", "/posts/new",
		at + "/edit", at + "/report", at + "/restore", at + "/drops/new", comment + "/reply", comment + "/edit",
	}
	s.must(t, 201, town.grace, "POST", webhooksPath,
		obj{"url": "https://hooks.example.org/a-rather-long-path/of-a-webhook", "events": []string{"post.created"}})
	s.must(t, 202, town.grace, "POST", webhooksPath+"/1/ping", nil)
	s.exec(t, letterNobodyReads)
	s.exec(t, "INSERT INTO pipeline_samples VALUES (UTC_TIMESTAMP()-INTERVAL 20 SECOND,12.25,12,3,4,0.5,0,0,1)")
	moderated := "/moderate" + user
	town.desks = []string{
		"/moderate", "/moderate?case=1", "/moderate?status=resolved", "/moderate/reports/1", "/moderate/posts",
		"/moderate/comments", "/moderate" + at, "/moderate" + comment, "/moderate" + at + "/versions/0",
		"/moderate/users", moderated, moderated + "/likes", moderated + "/images", fmt.Sprintf("/moderate/drops/%d",
			drop.ID), "/moderate/rings", "/moderate/redactions", "/moderate/log", "/moderate/security", "/operate",
		"/operate/like", "/operate/dead-letters", "/operate/reconcile", "/operate/webhooks", "/operate/webhooks/1",
		fmt.Sprintf("/operate/like?post=%d", post.ID), at,
	}
	return town
}

// every calls f with each page: those of ada, of the anonymous, and the desks.
func (w *town) every(f func(as account, path string)) {
	for _, path := range w.paths {
		f(w.ada, path)
	}
	for _, path := range append(w.paths[:18:18], "/sign-in", "/sign-up", "/forgot", "/reset?token=t",
		"/confirm?token=t", "/undo?token=t") {
		f(account{}, path)
	}
	for _, path := range w.desks {
		f(w.grace, path)
	}
}

// The Nu HTML checker finds nothing in any page.
func TestWebChecks_validHTML(t *testing.T) {
	t.Parallel()
	checker := filepath.Join(pageChecks(t), "vnu-jar", "build", "dist", "vnu.jar")
	w := newTown(t)
	folder := t.TempDir()
	names := map[string]string{}
	args := []string{"-jar", checker, "--format", "json", "--exit-zero-always"}
	w.every(func(as account, path string) {
		file := filepath.Join(folder, fmt.Sprintf("%d.html", len(names)))
		require.NoError(t, os.WriteFile(file, []byte(w.as(t, as).get(path).body), 0o600))
		names[file] = as.Name + " " + path
		args = append(args, file)
	})
	cmd := exec.CommandContext(t.Context(), "java", args...)
	var found strings.Builder
	cmd.Stderr = &found
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, found.String())
	var report struct {
		Messages []struct {
			URL, Type, SubType, Message, Extract string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(found.String()), &report), found.String())
	for _, m := range report.Messages {
		page := names[strings.TrimPrefix(m.URL, "file:")]
		t.Errorf("%s: %s %s: %s at %s", page, m.Type, m.SubType, m.Message, m.Extract)
	}
}

// axe finds nothing in any page, light, dark and from right to left, and nothing scrolls sideways on a small screen or
// with large letters.
func TestWebChecks_accessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(filepath.Join(pageChecks(t), "axe-core", "axe.min.js"))
	require.NoError(t, err)
	w := newTown(t)
	browsers := map[string]*chrome{}
	w.every(func(as account, path string) {
		b := browsers[as.Name]
		if b == nil {
			b = w.chrome(t, as)
			browsers[as.Name] = b
		}
		b.do(chromedp.EmulateViewport(1280, 900))
		b.open(path)
		for _, look := range []string{
			"", "document.documentElement.dataset.theme = 'dark'", "document.documentElement.dir = 'rtl'",
		} {
			b.run(look)
			b.do(chromedp.Evaluate[chromedp.Void](string(axe)))
			found := js[string](b, `axe.run(document, {
				runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
				resultTypes: ['violations']}).then((r) => r.violations.map((v) => v.id + ' ' + v.help + ': ' +
				v.nodes.map((n) => n.html + ' ' + n.failureSummary).slice(0, 3).join('; ')).join('\n'))`)
			assert.Empty(t, found, "%s %s %s", as.Name, path, look)
		}
		const wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
		for _, dir := range []string{"ltr", "rtl"} {
			b.run("document.documentElement.dir = '" + dir + "'")
			b.do(chromedp.EmulateViewport(320, 640))
			assert.LessOrEqual(t, js[int](b, wide), 0, "%s at 320 px, %s", path, dir)
			b.do(chromedp.EmulateViewport(640, 640))
			b.run("document.documentElement.style.fontSize = '200%'")
			assert.LessOrEqual(t, js[int](b, wide), 0, "%s with large letters, %s", path, dir)
			b.run("document.documentElement.style.fontSize = ''")
		}
	})
}
