package admission

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"likewise/images"
	"likewise/models"
)

// Bounds on uploads. A process holds at most maxUploads files, and the pixels of one image. An address has so few
// places that all of them together decode for less time than others wait.
const (
	MaxUpload       = images.MaxBytes + 64<<10 // bytes of a body: the file, and what surrounds it
	maxUploads      = 8
	maxUploadsOfOne = 2
	UploadTimeout   = 30 * time.Second // for receiving a body
	DecodeLimit     = 20 * time.Second // for decoding, of which images.MaxProcessor are work, on a busy machine
	DecodeWait      = 45 * time.Second // for a turn to decode; with the time of a request less than proxies wait, 60 s

	// A client that sends more slowly loses its place to another one, once it has had the time to begin.
	slowUpload  = 64 << 10 // bytes a second
	uploadGrace = 2 * time.Second
)

// Uploads bounds the work of uploads in a process.
type Uploads struct {
	decoding  chan struct{} // a place for the image that is being decoded
	mostOfOne int           // places of one address

	mu     sync.Mutex // guards all below
	places map[*Upload]bool
	of     map[int64]bool // users who are uploading
}

// NewUploads returns the places of a process. The factor multiplies those of one address, of which there is at least
// one; 0 means that there is no bound for an address.
func NewUploads(factor float64) *Uploads {
	mostOfOne := maxUploads
	if factor > 0 {
		mostOfOne = max(1, int(maxUploadsOfOne*factor))
	}
	return &Uploads{decoding: make(chan struct{}, 1), mostOfOne: mostOfOne, places: map[*Upload]bool{},
		of: map[int64]bool{}}
}

// AwaitDecoding waits until it is an image's turn to be decoded; done ends the turn. It returns CodeUnavailable if that
// takes longer than DecodeWait, or if ctx ends.
func (u *Uploads) AwaitDecoding(ctx context.Context) (done func(), err error) {
	wait, cancel := context.WithTimeout(ctx, DecodeWait)
	defer cancel()
	select {
	case u.decoding <- struct{}{}:
		return func() { <-u.decoding }, nil
	case <-wait.Done():
		return nil, models.Unavailable("Too many images are being uploaded; try again.", ErrOverload)
	}
}

// Upload is a body that is held, or is about to be.
type Upload struct {
	User      int64
	From      string // the address
	Conn      net.Conn
	Began     time.Time
	received  atomic.Int64 // bytes
	receiving bool         // guarded by Uploads.mu
}

// Enter takes a place for an upload, at the expense of the slowest client if all are taken. CodeRateLimited: the user
// or the address has theirs. CodeUnavailable: all are taken by clients that send fast enough.
func (u *Uploads) Enter(up *Upload) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[up.User] {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: time.Second,
			Message: "You are already uploading an image; wait until that has finished."}
	}
	ofAddress := 0
	for other := range u.places {
		if other.From == up.From {
			ofAddress++
		}
	}
	if ofAddress >= u.mostOfOne {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: time.Second,
			Message: "Your address is already uploading other images; wait until one of them has finished."}
	}
	if len(u.places) >= maxUploads && !u.evict(up.Began) {
		return models.Unavailable("Too many images are being uploaded; try again.", ErrOverload)
	}
	u.of[up.User], u.places[up], up.receiving = true, true, true
	return nil
}

// evict ends the slowest upload that is slow, and reports whether there was one. Its handler answers 408.
func (u *Uploads) evict(now time.Time) bool {
	var slowest *Upload
	lowest := float64(slowUpload)
	for up := range u.places {
		took := now.Sub(up.Began)
		if rate := float64(up.received.Load()) / took.Seconds(); up.receiving && took > uploadGrace && rate < lowest {
			slowest, lowest = up, rate
		}
	}
	if slowest == nil {
		return false
	}
	delete(u.places, slowest)
	_ = slowest.Conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection has ended its upload already
	return true
}

// Received reports that all of an upload has been received, and whether it still has its place.
func (u *Uploads) Received(up *Upload) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	up.receiving = false
	return u.places[up]
}

// Leave returns the place of an upload.
func (u *Uploads) Leave(up *Upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.places, up)
	delete(u.of, up.User)
}

// Count counts what was received.
func (up *Upload) Count(n int, err error) (int, error) {
	up.received.Add(int64(n))
	return n, err
}
