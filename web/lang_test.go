package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLanguageOf_isTheChosenOrThePreferredOne(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for accept, want := range map[string]string{
		"": "en", "zh": simplified, "zh-CN,zh;q=0.9,en;q=0.8": simplified, "zh-Hans-SG": simplified,
		"zh-TW": simplified, "de,en;q=0.5": "en", "ja": "en", "en-GB,zh;q=0.5": "en", "nonsense;;": "en",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Language", accept)
		assert.Equal(t, want, s.languageOf(r).name, accept)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Language", "en")
	r.Header.Set("Cookie", "lang=zh-Hans")
	assert.Equal(t, simplified, s.languageOf(r).name)
}

func TestLanguage_writesTimesAndNumbersInChinese(t *testing.T) {
	t.Parallel()
	l, now := newTestServer(t).languages[1], time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{
		10 * time.Second: "刚刚", 5 * time.Minute: "5 分钟前", 3 * time.Hour: "3 小时前", 50 * time.Hour: "2 天前",
		60 * 24 * time.Hour: "9月27日", 400 * 24 * time.Hour: "2025年10月", -90 * time.Minute: "1 小时后",
		-5 * time.Minute: "5 分钟后", -72 * time.Hour: "3 天后",
	} {
		assert.Equal(t, want, l.ago(now.Add(-age), now))
	}
	assert.Equal(t, "2026年11月26日 12:00 UTC", l.date(now))
	assert.Equal(t, "1,234 条评论", l.text("%d comments", 1234))
	assert.Equal(t, "刷赞团伙", l.text("Like rings"))
	words, err := l.words()
	require.NoError(t, err)
	assert.Contains(t, words, `"posts":["%d 篇新帖子","%d 篇新帖子"]`)
}

func TestExplain_namesTheEndOfABan(t *testing.T) {
	t.Parallel()
	s, until := newTestServer(t), time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	v := &visit{Server: s, lang: s.languages[0]}
	p := &problem{Code: "banned", Ban: &ban{Until: &until, Reason: "Spam."}}
	assert.Equal(t, "You are banned until 26 November 2026, 12:00 UTC: Spam.", v.explain(p))
	p.Ban.Until = nil
	assert.Equal(t, "You are banned: Spam.", v.explain(p))
}

func TestTitle_ofAUserStaysAsItIs(t *testing.T) {
	t.Parallel()
	l := newTestServer(t).languages[1]
	title := func(v view) string {
		v.Site = "forum.example"
		var out strings.Builder
		require.NoError(t, l.pages["help"].ExecuteTemplate(&out, "page", &helpPage{v}))
		_, after, _ := strings.Cut(out.String(), "<title>")
		found, _, _ := strings.Cut(after, "</title>")
		return found
	}
	assert.Equal(t, "回复 · forum.example", title(view{Title: "Reply"}))
	assert.Equal(t, "Reply &amp; more · forum.example", title(view{Named: "Reply & more"}))
	assert.Equal(t, "Reply · forum.example", title(view{Named: "Reply"}))
	assert.Equal(t, "forum.example", title(view{}))
}
