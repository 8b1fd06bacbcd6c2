package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

type healthcheckCmd struct {
	URL string `arg:"" optional:"" default:"http://127.0.0.1:8080/healthz" help:"What to ask; workers answer on port 9081, cron on 9082. ${default} if not given."`
}

// healthcheckTimeout is for the whole exchange. A process that takes longer to say that it is alive is not.
const healthcheckTimeout = 2 * time.Second

// Run fails unless the answer is 200. It is for images without a shell, where nothing else could ask.
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
		return fmt.Errorf("not alive: %s answers %s", h.URL, response.Status)
	}
	return nil
}
