package handlers

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// An answer that has not changed is hashed and compressed once, and each coding is of that answer.
func TestShared_encodesAnAnswerOnce(t *testing.T) {
	t.Parallel()
	s, err := newShared(nil)
	require.NoError(t, err)
	ask := func(name string, body []byte) *encoded {
		e, err := s.answer(t.Context(), 1, name, func() ([]byte, error) { return bytes.Clone(body), nil })
		require.NoError(t, err)
		return e
	}
	before, after := bytes.Repeat([]byte(`{"likes_count":1}`), 100), bytes.Repeat([]byte(`{"likes_count":2}`), 100)
	first := ask("page", before)
	assert.Same(t, first, ask("page", before))
	changed := ask("page", after)
	assert.NotEqual(t, first.hash, changed.hash)
	assert.NotSame(t, changed, ask("other page", after))
	for e, body := range map[*encoded][]byte{first: before, changed: after} {
		assert.Equal(t, body, e.in(identity))
		for coding, decode := range map[string]func(dst, src []byte) ([]byte, error){
			"br": fasthttp.AppendUnbrotliBytes, "gzip": fasthttp.AppendGunzipBytes,
		} {
			decoded, err := decode(nil, e.in(coding))
			require.NoError(t, err)
			assert.Equal(t, body, decoded, coding)
		}
	}
}

// An answer is of the edition that its request has read, even if others wait for one of an earlier edition.
func TestShared_anAnswerIsOfItsEdition(t *testing.T) {
	t.Parallel()
	s, err := newShared(nil) // outside the bubble, because its caches have goroutines
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ask := func(edition int64, body string) {
			e, err := s.answer(t.Context(), edition, "page", func() ([]byte, error) {
				if edition == 1 {
					<-release
				}
				return []byte(body), nil
			})
			assert.NoError(t, err)
			assert.Equal(t, body, string(e.body))
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
