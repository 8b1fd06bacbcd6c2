//go:build dev

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBench_refusesSizesThatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	assert.Contains(t, fail(t, 1, nil, "bench", "--users=10"), "--users must be at least")
	assert.Contains(t, fail(t, 1, nil, "bench", "--loads=0"), "--loads must be")
	assert.Contains(t, fail(t, 1, nil, "bench", "--parts=expensive", "--sizes=20"), "--sizes must be from 10000")
	assert.Contains(t, fail(t, 1, nil, "bench", "--quick", "--recorded", t.TempDir()+"/none.json"), "none.json")
}
