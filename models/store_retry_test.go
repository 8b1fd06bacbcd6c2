package models

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTransactBackoff_allowsMaxAttempts(t *testing.T) {
	t.Parallel()
	pauses := transactBackoff()
	for n := 1; n < maxAttempts; n++ {
		next, stop := pauses.Next()
		assert.False(t, stop, "after run %d", n)
		assert.GreaterOrEqual(t, next, time.Duration(0))
		assert.Less(t, next, time.Duration(n)*2*time.Millisecond)
	}
	_, stop := pauses.Next()
	assert.True(t, stop, "after run %d", maxAttempts)
}
