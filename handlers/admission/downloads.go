package admission

import (
	"sync"
	"time"

	"likewise/models"
)

// maxDownloads is how many exports a process sends at once: each may take long, and holds a piece in memory.
const maxDownloads = 4

// ExportRetry is when a client should retry while its archive is being built or sent.
const ExportRetry = 10 * time.Second

// Downloads counts the exports in progress. It is safe for concurrent use, and the zero value is ready.
type Downloads struct {
	mu    sync.Mutex
	count int
	of    map[int64]bool // accounts whose archive is being sent
}

// Enter takes a place, which Leave returns. Account 0 is nobody's. It takes none if it returns CodeRateLimited, because
// the account has a place, or CodeUnavailable, because too many exports are in progress.
func (d *Downloads) Enter(account int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[account] {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: ExportRetry,
			Message: "Your archive is already being downloaded; wait until that has finished."}
	}
	if d.count >= maxDownloads {
		return models.Unavailable("Too many exports are in progress; try again.", nil)
	}
	d.count++
	if account != 0 {
		if d.of == nil {
			d.of = map[int64]bool{}
		}
		d.of[account] = true
	}
	return nil
}

// Leave returns a place.
func (d *Downloads) Leave(account int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count--
	delete(d.of, account)
}
