package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthcheck(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/alive", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc(
		"/dead",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	)
	mux.HandleFunc("/stuck", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := httptest.NewServer(mux)
	defer server.Close()
	ask := func(path string) error { return (&healthcheckCmd{URL: server.URL + path}).Run(t.Context()) }

	require.NoError(t, ask("/alive"))
	require.ErrorContains(t, ask("/dead"), "503")
	require.ErrorContains(t, ask("/stuck"), "deadline exceeded")
}
