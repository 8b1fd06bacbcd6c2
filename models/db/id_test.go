package db_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestID_isAStringInJSON(t *testing.T) {
	t.Parallel()
	const id = models.ID(9007199254740993) // 2^53 + 1, which JavaScript reads as 2^53
	text, err := json.Marshal(struct {
		ID models.ID `json:"id"`
	}{id})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"9007199254740993"}`, string(text))
	var back struct {
		ID models.ID `json:"id"`
	}
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, id, back.ID)
	for _, wrong := range []string{`9007199254740993`, `"0"`, `"-5"`, `"+5"`, `"05"`, `" 5"`, `""`, `"5x"`, `"0x5"`,
		`"9223372036854775808"`} {
		assert.Error(t, json.Unmarshal([]byte(`{"id":`+wrong+`}`), &back), wrong)
	}
}

func TestReserveSlots_neverOverlap(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	type slots struct{ first, end int64 }
	var mu sync.Mutex
	var all []slots
	var reserving sync.WaitGroup
	for worker := range int64(8) {
		reserving.Go(func() {
			last := int64(-1)
			for i := range int64(10) {
				// most are below what is reserved
				first, err := store.ReserveSlots(t.Context(), (9-i)*worker, 5)
				if !assert.NoError(t, err) || !assert.Greater(t, first, last) {
					return
				}
				last = first + 4
				mu.Lock()
				all = append(all, slots{first, first + 5})
				mu.Unlock()
			}
		})
	}
	reserving.Wait()
	slices.SortFunc(all, func(a, b slots) int { return int(a.first - b.first) })
	require.Len(t, all, 80)
	for i, item := range all[1:] {
		require.GreaterOrEqual(t, item.first, all[i].end)
	}

	first, err := store.ReserveSlots(t.Context(), 1_000_000, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, first)
	_, err = store.ReserveSlots(t.Context(), 1<<42, 1)
	require.Error(t, err, "an id would have more than 63 bits")
	first, err = store.ReserveSlots(t.Context(), 0, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_001, first, "the refused reservation has left nothing")
}
