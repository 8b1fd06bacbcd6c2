package admission

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
)

// The table of limits in docs/security.md must have the rates of the code.
func TestLimits_areThoseOfThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 { // four, and what is before and after them
			continue
		}
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		rows[cells[1]] = cells[2:5]
	}
	same := counters.Rate{Burst: -1}
	for action, rates := range map[string][3]counters.Rate{ // of an account, a new one, an address
		"write a post":                          {PostQuota.User, PostQuota.Fresh, PostQuota.Address},
		"comment":                               {CommentQuota.User, CommentQuota.Fresh, CommentQuota.Address},
		"report, request a redaction":           {ReportQuota.User, ReportQuota.Fresh, ReportQuota.Address},
		"search":                                {SearchQuota.User, same, SearchQuota.Address},
		"upload an image":                       {UploadQuota.User, UploadQuota.Fresh, UploadQuota.Address},
		"change a password, delete the account": {PasswordQuota.User, same, PasswordQuota.Address},
		"edit one post or comment":              {editQuota.User, same, editQuota.Address},
		"mark a post as read, save a draft":     {NoteQuota.User, same, NoteQuota.Address},
		"other writes":                          {WriteQuota.User, WriteQuota.Fresh, WriteQuota.Address},
		"register an account (valid requests)":  {{}, {}, RegisterQuota.Address},
		"preview a text (each KiB also counts as a request)": {RenderQuota.User, same, RenderQuota.Address},
	} {
		require.Contains(t, rows, action)
		for i, rate := range rates {
			cell := rows[action][i]
			if rate == same {
				assert.Equal(t, "the same", cell, action)
			} else {
				assert.Equal(t, rate, rateOf(t, cell), "%s: %q", action, cell)
			}
		}
	}
	assert.Equal(t, LoginQuota.Address, rateOf(t, rows["log in"][2]))
	whole := strings.Join(strings.Fields(string(text)), " ")
	for _, says := range []string{
		fmt.Sprintf("by typed login and address (%d tries, then one each %d s), by account (%d, then one each %d s) "+
			"and "+
			"by address (%d, then one each %d s)", pairRate.Burst, pairRate.Every/time.Second, accountRate.Burst,
			accountRate.Every/time.Second, LoginQuota.Address.Burst, LoginQuota.Address.Every/time.Second),
		fmt.Sprintf("A list of posts that walked an index also counts as one request for %d entries, and a search as "+
			"one "+
			"search for 5,000.", examinedPerRequest),
		fmt.Sprintf("| %d, then %d a second, in each process |", requestQuota.Address.Burst,
			time.Second/requestQuota.Address.Every),
	} {
		assert.Contains(t, whole, says)
	}
	assert.Equal(t, 5_000, examinedPerSearch)
}

// rateOf parses a rate such as "10, then 1 in 2 min" or "3000, then 10 a second". An empty cell is the zero Rate.
func rateOf(t *testing.T, cell string) counters.Rate {
	t.Helper()
	if cell == "" {
		return counters.Rate{}
	}
	match := regexp.MustCompile(`^(\d+), then (?:(\d+) a (second|minute)|1 (?:in|an?) ?(\d*) ?(min|s|h|hour))$`).
		FindStringSubmatch(cell)
	require.NotNil(t, match, cell)
	units := map[string]time.Duration{"second": time.Second, "minute": time.Minute, "s": time.Second,
		"min": time.Minute, "h": time.Hour, "hour": time.Hour}
	var rate counters.Rate
	_, err := fmt.Sscan(match[1], &rate.Burst)
	require.NoError(t, err)
	n := 1
	if match[2]+match[4] != "" {
		_, err = fmt.Sscan(match[2]+match[4], &n)
		require.NoError(t, err)
	}
	if match[3] != "" {
		rate.Every = units[match[3]] / time.Duration(n)
	} else {
		rate.Every = units[match[5]] * time.Duration(n)
	}
	return rate
}
