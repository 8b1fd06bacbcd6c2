package admission

import (
	"sync/atomic"

	"likewise/models"
)

// maxDownloads is how many exports a process sends at once: each may take long, and holds a piece in memory.
const maxDownloads = 4

// Downloads counts the exports in progress. It is safe for concurrent use, and the zero value is ready.
type Downloads struct{ count atomic.Int64 }

// Enter takes a place, which Leave returns. It returns CodeUnavailable, and takes none, if too many exports are in
// progress.
func (d *Downloads) Enter() error {
	if d.count.Add(1) > maxDownloads {
		d.count.Add(-1)
		return models.Unavailable("Too many exports are in progress; try again.", nil)
	}
	return nil
}

// Leave returns a place.
func (d *Downloads) Leave() { d.count.Add(-1) }
