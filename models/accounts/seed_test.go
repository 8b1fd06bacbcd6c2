package accounts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// The codes are those of RFC 6238, appendix B, with six digits.
func TestStepOf_acceptsEachStepOnce(t *testing.T) {
	t.Parallel()
	const seed = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
	at := time.Unix(1111111109, 0)
	const step = 1111111109 / stepSeconds
	for _, test := range []struct {
		now  time.Time
		last int64
		want int64
	}{
		{at, 0, step},
		{at, step - 1, step},
		{at, step, 0},     // the same code again
		{at, step + 1, 0}, // a code of an older step after a newer one
		{at.Add(30 * time.Second), 0, step},
		{at.Add(-30 * time.Second), 0, step},
		{at.Add(60 * time.Second), 0, 0},
		{at.Add(-60 * time.Second), 0, 0},
	} {
		got, err := stepOf(seed, "081804", test.now, test.last)
		require.NoError(t, err)
		assert.Equal(t, test.want, got, "%+v", test)
	}
}

func TestSeeds_openForTheirUserAndKeyAlone(t *testing.T) {
	t.Parallel()
	key := []byte("a secret key of at least 32 bytes!")
	seeds, err := NewSeeds(key)
	require.NoError(t, err)
	seed, sealed, err := seeds.create(1)
	require.NoError(t, err)
	assert.NotContains(t, string(sealed), seed)
	opened, err := seeds.open(1, sealed)
	require.NoError(t, err)
	assert.Equal(t, seed, opened)

	_, err = seeds.open(2, sealed)
	assert.Equal(t, models.CodeFactorsOff, models.ErrorCode(err), "another user")
	others, err := NewSeeds([]byte("another key, of another site, of 32 bytes"))
	require.NoError(t, err)
	_, err = others.open(1, sealed)
	assert.Equal(t, models.CodeFactorsOff, models.ErrorCode(err), "another key")
	_, err = seeds.open(1, sealed[:5])
	assert.Equal(t, models.CodeFactorsOff, models.ErrorCode(err), "cut")
	none, err := NewSeeds(nil)
	require.NoError(t, err)
	_, err = none.open(1, sealed)
	assert.Equal(t, models.CodeFactorsOff, models.ErrorCode(err), "no key")
}
