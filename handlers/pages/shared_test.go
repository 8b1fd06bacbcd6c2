package pages

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"likewise/counters/rounds"
)

// An answer that has not changed is hashed and compressed once, and each coding is of that answer.
func TestShared_encodesAnAnswerOnce(t *testing.T) {
	t.Parallel()
	s, err := NewShared(nil, time.Second)
	require.NoError(t, err)
	ask := func(name string, body []byte) *Encoded {
		e, err := s.Answer(t.Context(), 1, name, func() ([]byte, error) { return bytes.Clone(body), nil })
		require.NoError(t, err)
		return e
	}
	before, after := bytes.Repeat([]byte(`{"likes_count":1}`), 100), bytes.Repeat([]byte(`{"likes_count":2}`), 100)
	first := ask("page", before)
	assert.Same(t, first, ask("page", before))
	changed := ask("page", after)
	assert.NotEqual(t, first.Hash, changed.Hash)
	assert.NotSame(t, changed, ask("other page", after))
	for e, body := range map[*Encoded][]byte{first: before, changed: after} {
		assert.Equal(t, body, e.In(Identity))
		for coding, decode := range map[string]func(dst, src []byte) ([]byte, error){
			"br": fasthttp.AppendUnbrotliBytes, "gzip": fasthttp.AppendGunzipBytes,
		} {
			decoded, err := decode(nil, e.In(coding))
			require.NoError(t, err)
			assert.Equal(t, body, decoded, coding)
		}
	}
}

// An answer is of the edition that its request has read, even if others wait for one of an earlier edition.
func TestShared_anAnswerIsOfItsEdition(t *testing.T) {
	t.Parallel()
	s, err := NewShared(nil, time.Second) // outside the bubble, because its caches have goroutines
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ask := func(edition int64, body string) {
			e, err := s.Answer(t.Context(), edition, "page", func() ([]byte, error) {
				if edition == 1 {
					<-release
				}
				return []byte(body), nil
			})
			assert.NoError(t, err)
			assert.Equal(t, body, string(e.Body))
		}
		for range 2 { // one is read, and one waits
			go ask(1, "before")
			synctest.Wait()
		}
		ask(2, "after")
		close(release)
		synctest.Wait()
	})
}

// While one query runs, other reads gather for the next, and a query that hangs leaves them time.
func TestGather_leavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		var batch rounds.Batch[int64, map[int64]string]
		var queries [][]int64
		query := func(ctx context.Context, ids []int64) (map[int64]string, error) {
			queries = append(queries, ids)
			if slices.Contains(ids, 1) { // hangs
				<-ctx.Done()
				return nil, ctx.Err()
			}
			found := map[int64]string{}
			for _, id := range ids {
				if id != 7 {
					found[id] = fmt.Sprint(id)
				}
			}
			return found, nil
		}
		read := func(id int64) (string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return Gather(ctx, &batch, timeout/2, id, query)
		}
		var all sync.WaitGroup
		all.Go(func() {
			_, err := read(1)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		for id := int64(2); id <= 10; id++ {
			all.Go(func() {
				found, err := read(id)
				assert.NoError(t, err)
				if id == 7 {
					assert.Empty(t, found)
				} else {
					assert.Equal(t, fmt.Sprint(id), found)
				}
			})
		}
		all.Wait()
		require.Len(t, queries, 2)
		assert.ElementsMatch(t, []int64{2, 3, 4, 5, 6, 7, 8, 9, 10}, queries[1])
	})
}
