package handlers

import (
	"bytes"
	"testing"

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
		e, err := s.answer(t.Context(), name, func() ([]byte, error) { return bytes.Clone(body), nil })
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
