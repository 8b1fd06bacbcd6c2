package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

type healthcheckCmd struct {
	URL string `arg:"" optional:"" default:"http://127.0.0.1:8080/healthz" help:"${url_help}"`
}

// healthcheckTimeout bounds the whole exchange.
const healthcheckTimeout = 2 * time.Second

// Run returns an error unless the response is 200. Images without a shell have no other client.
func (h *healthcheckCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return fmt.Errorf("not alive: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("not alive: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not alive: %s answered %s", h.URL, response.Status)
	}
	return nil
}
