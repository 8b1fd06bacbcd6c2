//go:build web && webbench

package handlers_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	people "likewise/internal/sample"
	"likewise/models/accounts"
)

// newSample returns the pages of the sample forum.
func newSample(t *testing.T) *forum {
	t.Helper()
	var config handlers.Config
	s := newForum(t, func(c *handlers.Config) { config = *c })
	require.NoError(t, people.Begin(t.Context(), s.store))
	require.NoError(t, people.Create(t.Context(), people.Forum{
		Store: s.store, Likes: config.Likes.(*counters.Likes), Claims: config.Claims, IDs: config.IDs, Now: s.store.Now(),
	}))
	s.settle()
	return s
}

// person signs in as a person of the sample.
func (s *forum) person(t *testing.T, name string) account {
	t.Helper()
	users := accounts.New(s.store)
	user, err := users.UserByLogin(t.Context(), name)
	require.NoError(t, err)
	token, err := users.CreateSession(t.Context(), user.ID)
	require.NoError(t, err)
	return account{user.ID, name, token}
}

// The pictures in README and docs: `make screenshots` takes them. Somebody looks at them before they are committed.
func TestWebScreenshots(t *testing.T) {
	s := newSample(t)
	visitor, moderator := s.chrome(t, s.person(t, "ada")), s.chrome(t, s.person(t, "grace"))
	mobile := func(p *emulation.SetDeviceMetricsOverrideParams, _ *emulation.SetTouchEmulationEnabledParams) {
		p.Mobile = true
	}
	for _, picture := range []struct {
		name, path    string
		by            *chrome
		width, height int64
		script        string
	}{
		{"page-front", "/", visitor, 1120, 760, ""},
		{"page-thread", "/posts/1", visitor, 1120, 900, "document.documentElement.dataset.theme = 'dark'"},
		{"page-phone", "/posts/1", visitor, 390, 844, ""},
		{"page-desk", "/moderate", moderator, 1120, 640, ""},
	} {
		b := picture.by
		view := chromedp.EmulateViewport(picture.width, picture.height)
		if picture.width < 500 {
			view = chromedp.EmulateViewport(picture.width, picture.height, mobile)
		}
		b.do(view)
		b.open(picture.path)
		b.run(picture.script + "; await new Promise((r) => setTimeout(r, 500))")
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join("..", "docs", picture.name+".png"), png, 0o600))
	}
}

// What Lighthouse says of a first visit on a telephone: `make lighthouse` prints it.
func TestWebLighthouse(t *testing.T) {
	s := newSample(t)
	program := filepath.Join(pageChecks(t), "lighthouse", "cli", "index.js")
	for _, path := range []string{"/", "/posts/1"} {
		file := filepath.Join(t.TempDir(), "report.json")
		cmd := exec.CommandContext(t.Context(), "node", program, s.base+path, "--quiet", "--output=json",
			"--output-path="+file, "--chrome-flags=--headless=new --no-sandbox")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var report struct {
			Categories map[string]struct{ Score float64 }
			Audits     map[string]struct{ NumericValue float64 }
		}
		require.NoError(t, json.Unmarshal(raw, &report))
		audit := func(name string) float64 { return report.Audits[name].NumericValue }
		t.Logf("%s: LCP %v, TBT %v, CLS %.3f, scores %v", path,
			time.Duration(audit("largest-contentful-paint"))*time.Millisecond,
			time.Duration(audit("total-blocking-time"))*time.Millisecond, audit("cumulative-layout-shift"),
			report.Categories)
	}
}
