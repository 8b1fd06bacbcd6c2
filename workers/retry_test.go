package workers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBackOff_doublesUpToItsBound(t *testing.T) {
	t.Parallel()
	pauses := backOff(50*time.Millisecond, 5*time.Second)
	for _, ms := range []int{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000} {
		limit := time.Duration(ms) * time.Millisecond
		next, stop := pauses.Next()
		assert.False(t, stop)
		assert.LessOrEqual(t, next, limit)
		assert.GreaterOrEqual(t, next, limit/2)
	}
	for range 100 { // without a limit, the doubled pause would overflow
		next, stop := pauses.Next()
		assert.False(t, stop)
		assert.LessOrEqual(t, next, 5*time.Second)
		assert.GreaterOrEqual(t, next, 2500*time.Millisecond)
	}
}
