package web

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBanUntil(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, time.January, 31, 23, 59, 58, 999, time.FixedZone("", 3600))
	for choice, want := range map[string]string{
		"day": "2027-02-01T22:59:58Z", "days": "2027-02-03T22:59:58Z", "week": "2027-02-07T22:59:58Z",
		"month": "2027-03-03T22:59:58Z", // February has no 31st
	} {
		until, err := banUntil(choice, now)
		require.NoError(t, err, choice)
		assert.Equal(t, want, until.Format(time.RFC3339), choice)
	}
	until, err := banUntil("ever", now)
	require.NoError(t, err)
	assert.Nil(t, until)
	for _, choice := range []string{"", "year"} {
		_, err := banUntil(choice, now)
		assert.Error(t, err, "a form without a choice must not ban without end: %q", choice)
	}
}

func TestNoteOf(t *testing.T) {
	t.Parallel()
	number := func(n int64) *int64 { return &n }
	for query, want := range map[string]*note{
		"":                     nil,
		"did=post.burn&of=1":   nil,
		"did=post.delete":      {Text: "The post was deleted."},
		"did=post.delete&of=x": {Text: "The post was deleted."},
		"did=post.delete&of=7": {
			Text: "The post was deleted.", Of: "7", Link: "/moderate/posts/7",
			Undo: &undo{Action: "/moderate/posts/7/restore"},
		},
		"did=post.purge&of=7": {Text: "The post was purged.", Of: "7", Link: "/moderate/posts/7"},
		"did=user.role&of=7&was=user": {
			Text: "The role was changed.", Of: "7", Link: "/moderate/users/7",
			Undo: &undo{Action: "/moderate/users/7/role", Fields: []hiddenField{{"role", "user"}}},
		},
		"did=user.role&of=7":   {Text: "The role was changed.", Of: "7", Link: "/moderate/users/7"},
		"did=user.claims&of=7": {Text: "Claims voided: %d.", N: number(0), Of: "7", Link: "/moderate/users/7"},
		"did=cases.removed&n=2&t=post-3&t=comment-4&t=user-5&t=post-x&t=post--1": {
			Text: "Removed: %d. The reporters are notified.", N: number(2),
			Undo: &undo{Action: "/moderate/restore", Fields: []hiddenField{{"t", "post-3"}, {"t", "comment-4"}}},
		},
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		assert.Equal(t, want, noteOf(q), query)
	}
}

func TestActs_areReversedByActs(t *testing.T) {
	t.Parallel()
	for name, a := range acts {
		assert.NotEmpty(t, a.Button, name)
		assert.NotEmpty(t, a.Done, name)
		if a.Undo != "" {
			assert.Contains(t, acts, a.Undo, name)
			assert.False(t, a.Final, name)
		}
	}
}

func TestWithNote_replacesTheLast(t *testing.T) {
	t.Parallel()
	first := withNote("/moderate/posts?q=a+b", url.Values{"did": {"post.lock"}, "of": {"1"}})
	assert.Equal(t, "/moderate/posts?did=post.lock&of=1&q=a+b", first)
	second := withNote(first, url.Values{"did": {"cases.removed"}, "t": {"post-1", "post-2"}})
	assert.Equal(t, "/moderate/posts?did=cases.removed&q=a+b&t=post-1&t=post-2", second)
	u, err := url.Parse(second)
	require.NoError(t, err)
	assert.Equal(t, "/moderate/posts?q=a+b", withoutNote(u))
}

func TestCasesIn(t *testing.T) {
	t.Parallel()
	ids, targets := casesIn([]string{"3:post-5", "3:post-5", "x:post-6", "4:user-1", "-1:post-1", "8:comment-2"})
	assert.Equal(t, []int64{3, 4, 8}, ids)
	assert.Equal(t, []string{"post-5", "comment-2"}, targets)
}

func TestCaseAfter(t *testing.T) {
	t.Parallel()
	cases := []reportCase{{ID: 4}, {ID: 6}, {ID: 9}}
	for chosen, want := range map[int64]int64{4: 6, 6: 9, 9: 4, 1: 4} {
		assert.Equal(t, want, caseAfter(cases, &reportCase{ID: chosen}), chosen)
	}
	assert.Zero(t, caseAfter(cases[:1], &cases[0]))
	assert.Zero(t, caseAfter(nil, nil))
}

func TestOwnFirst_keepsTheOrderOtherwise(t *testing.T) {
	t.Parallel()
	cases := []reportCase{
		{ID: 1, ClaimedBy: &author{ID: 7}}, {ID: 2}, {ID: 3, ClaimedBy: &author{ID: 5}},
		{ID: 4, ClaimedBy: &author{ID: 7}}, {ID: 5, ClaimedBy: &author{ID: 5}},
	}
	var ids []int64
	for _, c := range ownFirst(cases, &account{author: author{ID: 5}}) {
		ids = append(ids, c.ID)
	}
	assert.Equal(t, []int64{3, 5, 1, 2, 4}, ids)
}

func TestAgainFields_keepWhatWasTyped(t *testing.T) {
	t.Parallel()
	form := url.Values{
		"reason": {"Spam."}, "key": {"one"}, "drop_id": {"x"}, "back": {"/moderate"}, "t": {"post-1", "post-2"},
	}
	refused := &problem{Status: 422, Errors: []fieldError{{Field: "drop_id", Message: "must be a number"}}}
	fields := againFields(form, refused)
	require.Len(t, fields, 6)
	assert.Equal(t, againField{"back", "/moderate", false, nil}, fields[0])
	assert.Equal(t, againField{"drop_id", "x", true, []string{"must be a number"}}, fields[1])
	assert.NotEqual(t, "one", fields[2].Value, "another text needs another key")
	assert.Equal(t, againField{"reason", "Spam.", true, nil}, fields[3])
	assert.Equal(t, againField{"t", "post-2", false, nil}, fields[5])
	uncertain := againFields(form, &problem{Status: 503})
	assert.Equal(t, "one", uncertain[2].Value, "the act may have been carried out")
}

func TestDayTime(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "2026-11-01T00:00:00Z", dayTime("2026-11-01"))
	for _, typed := range []string{"", "yesterday", "2026-13-01"} {
		assert.Empty(t, dayTime(typed))
	}
}

func TestLogEntry_Changes(t *testing.T) {
	t.Parallel()
	e := logEntry{
		Before: map[string]any{"pinned": false, "likes": 12345678.0},
		After:  map[string]any{"pinned": true, "until": nil},
	}
	want := []change{{"likes", "12345678", "–"}, {"pinned", "false", "true"}, {"until", "–", "–"}}
	assert.Equal(t, want, e.Changes())
}

func TestTyped(t *testing.T) {
	t.Parallel()
	assert.True(t, typed(url.Values{"reason": {"Spam."}}))
	assert.False(t, typed(url.Values{"reason": {""}, "key": {"k"}}))
}
