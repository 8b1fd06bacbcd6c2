package web

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNew_parsesTheTemplates(t *testing.T) {
	t.Parallel()
	api, err := url.Parse("http://127.0.0.1:1")
	require.NoError(t, err)
	_, err = New(Config{API: api, PublicURL: api})
	require.NoError(t, err)
}
