package web

import (
	"encoding/xml"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newSite(t *testing.T) *Server {
	t.Helper()
	api, err := url.Parse("http://127.0.0.1:1")
	require.NoError(t, err)
	s, err := New(Config{API: api, PublicURL: api})
	require.NoError(t, err)
	return s
}

func TestNiceMax_isRoundAndNotBelow(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{
		0: 1, 0.3: 1, 1: 1, 1.01: 2, 2: 2, 3: 5, 7: 10, 99: 100, 101: 200, 201: 500, 4_999: 5_000, 1e6 + 1: 2e6,
	} {
		assert.InDelta(t, want, niceMax(v), 1e-9, "%v", v)
	}
}

func TestNewChart(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := make([]time.Time, 7)
	for i := range at {
		at[i] = from.Add(time.Duration(i) * 10 * time.Minute)
	}
	value := func(v float64) *float64 { return &v }
	values := []*float64{value(0), value(2), nil, value(4), nil, value(3), value(1)}
	c := newChart("Waiting", from, from.Add(time.Hour), at, values)
	assert.InDelta(t, 5, c.Max, 1e-9, "the axis begins at zero and ends at a round number")
	assert.Equal(t, "M4.0 98.0L48.0 67.6M136.0 37.2h.1M224.0 52.4L268.0 82.8", c.Path)
	assert.InDelta(t, 1, *c.Last, 1e-9)
	assert.InDelta(t, 268, c.LastX, 1e-9)
	assert.InDelta(t, 82.8, c.LastY, 1e-9)

	unknown := newChart("Waiting", from, from.Add(time.Hour), at[:2], []*float64{value(3), nil})
	assert.Nil(t, unknown.Last, "what was known once is not the present")
	empty := newChart("Waiting", from, from.Add(time.Hour), nil, nil)
	assert.Empty(t, empty.Path)
	assert.InDelta(t, 1, empty.Max, 1e-9)
}

// The drawing is XML, has its title and its latest value as text, and nothing inline.
func TestChart_isAnSVG(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	from := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	value := 12.25
	c := newChart("Likes & more", from, from.Add(time.Hour), []time.Time{from.Add(time.Minute)}, []*float64{&value})
	var out strings.Builder
	require.NoError(t, s.languages[0].pages["op_state"].ExecuteTemplate(&out, "op-chart", c))
	var drawn struct {
		Svg struct {
			Label string   `xml:"aria-label,attr"`
			Role  string   `xml:"role,attr"`
			Title string   `xml:"title"`
			Texts []string `xml:"text"`
		} `xml:"svg"`
		Caption string `xml:"figcaption"`
	}
	require.NoError(t, xml.Unmarshal([]byte(out.String()), &drawn), out.String())
	assert.Equal(t, "Likes & more: now 12.2", drawn.Svg.Label)
	assert.Equal(t, "img", drawn.Svg.Role)
	assert.Equal(t, "Likes & more", drawn.Svg.Title)
	assert.Equal(t, []string{"20", "12:00", "13:00", "12.2"}, drawn.Svg.Texts)
	assert.Equal(t, "Likes & more", drawn.Caption)
	assert.NotContains(t, out.String(), "style=")
}

func TestBrief(t *testing.T) {
	t.Parallel()
	l := newSite(t).languages[0]
	for v, want := range map[float64]string{
		0: "0", 7: "7", 0.125: "0.12", 3.456: "3.46", 45.67: "45.7", 123.4: "123", 12_345: "12,345", 2e6: "2 million",
	} {
		assert.Equal(t, want, l.brief(v))
	}
}
