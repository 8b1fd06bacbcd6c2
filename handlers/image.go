package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"likewise/images"
	"likewise/models"
)

// Bounds on uploads. A process holds at most maxUploads files, and the pixels of one image. An address has so few
// places that all of them together decode for less time than others wait.
const (
	maxUpload       = images.MaxBytes + 64<<10 // bytes of a body: the file, and what surrounds it
	maxUploads      = 8
	maxUploadsOfOne = 2
	dropTimeout     = 10 * time.Second // for removing the row of an image that was not stored
	uploadTimeout   = 30 * time.Second // for receiving a body
	decodeLimit     = 20 * time.Second // for decoding, of which images.MaxProcessor are work, on a busy machine
	decodeWait      = 45 * time.Second // for a turn to decode; with the time of a request less than proxies wait, 60 s

	// A client that sends more slowly loses its place to another one, once it has had the time to begin.
	slowUpload  = 64 << 10 // bytes a second
	uploadGrace = 2 * time.Second

	// decodingUnit is the time of decoding that counts as one against decodingQuota.
	decodingUnit = 100 * time.Millisecond
)

// imageField is the name of the part of a body that has the file.
const imageField = "file"

// uploads bounds the work of uploads in a process.
type uploads struct {
	decoding  chan struct{} // a place for the image that is being decoded
	mostOfOne int           // places of one address

	mu     sync.Mutex // guards all below
	places map[*upload]bool
	of     map[int64]bool // users who are uploading
}

func newUploads(mostOfOne int) *uploads {
	return &uploads{decoding: make(chan struct{}, 1), mostOfOne: mostOfOne, places: map[*upload]bool{},
		of: map[int64]bool{}}
}

// upload is a body that is held, or is about to be.
type upload struct {
	user      int64
	from      string // the address
	conn      net.Conn
	began     time.Time
	received  atomic.Int64 // bytes
	receiving bool         // guarded by uploads.mu
}

// enter takes a place for an upload, at the expense of the slowest client if all are taken. CodeRateLimited: the user
// or the address has theirs. CodeUnavailable: all are taken by clients that send fast enough.
func (u *uploads) enter(up *upload) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[up.user] {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: time.Second,
			Message: "You are already uploading an image; wait until that has finished."}
	}
	ofAddress := 0
	for other := range u.places {
		if other.from == up.from {
			ofAddress++
		}
	}
	if ofAddress >= u.mostOfOne {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: time.Second,
			Message: "Your address is already uploading other images; wait until one of them has finished."}
	}
	if len(u.places) >= maxUploads && !u.evict(up.began) {
		return models.Unavailable("Too many images are being uploaded; try again.", errOverload)
	}
	u.of[up.user], u.places[up], up.receiving = true, true, true
	return nil
}

// evict ends the slowest upload that is slow, and reports whether there was one. Its handler answers 408.
func (u *uploads) evict(now time.Time) bool {
	var slowest *upload
	least := float64(slowUpload)
	for up := range u.places {
		took := now.Sub(up.began)
		if rate := float64(up.received.Load()) / took.Seconds(); up.receiving && took > uploadGrace && rate < least {
			slowest, least = up, rate
		}
	}
	if slowest == nil {
		return false
	}
	delete(u.places, slowest)
	_ = slowest.conn.SetReadDeadline(time.Unix(1, 0)) // a closed connection has ended its upload already
	return true
}

// entered reports that all of an upload has been received, and whether it still has its place.
func (u *uploads) entered(up *upload) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	up.receiving = false
	return u.places[up]
}

func (u *uploads) leave(up *upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.places, up)
	delete(u.of, up.user)
}

// count counts what was received.
func (up *upload) count(n int, err error) (int, error) {
	up.received.Add(int64(n))
	return n, err
}

type imageJSON struct {
	ID           string    `json:"id"`
	URL          string    `json:"url"`
	ThumbnailURL string    `json:"thumbnail_url"`
	Type         string    `json:"type"`
	Width        int       `json:"width"`
	Height       int       `json:"height"`
	Bytes        int64     `json:"bytes"`
	Hidden       bool      `json:"hidden"`
	CreatedAt    time.Time `json:"created_at"`
}

const thumbnailPath = "/thumbnail"

func newImageJSON(i *models.Image) imageJSON {
	url := models.ImagePath + i.Name
	return imageJSON{i.Name, url, url + thumbnailPath, i.Type, i.Width, i.Height, i.Bytes, i.Hidden, i.CreatedAt}
}

// isUpload reports whether the body of a request is received by its handler, as it arrives.
func isUpload(method, path []byte) bool {
	return string(method) == fiber.MethodPost && string(path) == strings.TrimSuffix(models.ImagePath, "/")
}

// receive reads the body of a request before its handler runs, unless it is an upload. It returns fasthttp's errors.
func receive(r *fasthttp.RequestCtx) error {
	stream := r.RequestBodyStream()
	if stream == nil || isUpload(r.Method(), r.Path()) {
		return nil
	}
	if r.Request.Header.ContentLength() > maxBody {
		return fasthttp.ErrBodyTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(stream, maxBody+1))
	if err != nil {
		return err
	}
	if len(body) > maxBody {
		return fasthttp.ErrBodyTooLarge
	}
	r.Request.SetBodyRaw(body)
	return nil
}

// uploadImage stores an image. Its order is that of its costs: what the file is, how much room is left, a row that
// names the objects, the objects, and last the mark that shows the image. Wherever that ends, the cron job deletes what
// is left.
func (s *Server) uploadImage(c *fiber.Ctx) error {
	if s.images == nil {
		return models.Errorf(models.CodeForbidden, "This site takes no images.")
	}
	if err := s.mayDecode(c); err != nil {
		return err
	}
	up := &upload{user: viewerID(c), from: s.clientKey(c), conn: c.Context().Conn(), began: time.Now()}
	if err := s.uploads.enter(up); err != nil {
		return err
	}
	defer s.uploads.leave(up)
	file, err := s.receiveFile(c, up)
	if err != nil {
		return err
	}
	if !s.uploads.entered(up) {
		return fiber.ErrRequestTimeout
	}
	// Receiving had a time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), s.timeout+decodeWait)
	defer cancel()
	made, err := s.makeImage(ctx, c, file)
	if err != nil {
		return err
	}
	i := &models.Image{UserID: viewerID(c), Type: made.Image.Type, Width: made.Image.Width, Height: made.Image.Height,
		Bytes: int64(len(made.Image.Data)), ThumbnailBytes: int64(len(made.Thumb.Data))}
	if err := s.store.AddImage(ctx, i, imageField, s.imageRoom); err != nil {
		return err
	}
	if err := s.storeImage(ctx, i, made); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, models.ImagePath+i.Name)
	return c.Status(http.StatusCreated).JSON(newImageJSON(i))
}

// receiveFile reads the file of an upload. While the client sends it, other requests of its address are processed.
func (s *Server) receiveFile(c *fiber.Ctx, up *upload) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || kind != fiber.MIMEMultipartForm || params["boundary"] == "" {
		return nil, fiber.ErrUnsupportedMediaType
	}
	if c.Request().Header.ContentLength() > maxUpload {
		return nil, fiber.ErrRequestEntityTooLarge
	}
	if a, ok := c.Locals(answerKey).(*answer); ok {
		defer a.pause()()
	}
	stream := c.Context().RequestBodyStream()
	body := &io.LimitedReader{R: readerFunc(func(p []byte) (int, error) { return up.count(stream.Read(p)) }),
		N: maxUpload + 1}
	file, err := readForm(multipart.NewReader(body, strings.Clone(params["boundary"])))
	switch {
	case body.N <= 0:
		return nil, fiber.ErrRequestEntityTooLarge
	case err == nil:
		if _, err = io.Copy(io.Discard, body); body.N <= 0 {
			return nil, fiber.ErrRequestEntityTooLarge
		}
		if err == nil {
			c.Context().SetUserValue(receivedKey, true)
		}
	}
	if _, ok := errors.AsType[*models.Error](err); ok {
		return nil, err
	}
	if timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && timeout.Timeout() {
		return nil, fiber.ErrRequestTimeout
	}
	if err != nil {
		return nil, malformed("The body cannot be read as multipart/form-data.")
	}
	return file, nil
}

// readForm returns the file of a form that has nothing else. The name and the type in the form are ignored.
func readForm(form *multipart.Reader) (file []byte, err error) {
	for {
		part, err := form.NextRawPart() // a raw part is not decoded, whatever its header asks for
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if name := part.FormName(); name != imageField || file != nil {
			return nil, models.Invalid(name, models.Broken(models.FieldUnknown, "is not a field of this request, "+
				"or is there twice"))
		}
		if file, err = io.ReadAll(io.LimitReader(part, images.MaxBytes+1)); err != nil {
			return nil, err
		}
		if len(file) > images.MaxBytes {
			return nil, models.Invalid(imageField, models.TooLarge(images.MaxBytes, "bytes"))
		}
	}
	if len(file) == 0 {
		return nil, models.Invalid(imageField, models.Missing())
	}
	return file, nil
}

// makeImage decodes and encodes a file when it is its turn, and charges its user and address for the time.
func (s *Server) makeImage(ctx context.Context, c *fiber.Ctx, file []byte) (*images.Made, error) {
	wait, cancel := context.WithTimeout(ctx, decodeWait)
	defer cancel()
	select {
	case s.uploads.decoding <- struct{}{}:
		defer func() { <-s.uploads.decoding }()
	case <-wait.Done():
		return nil, models.Unavailable("Too many images are being uploaded; try again.", errOverload)
	}
	began, charging := time.Now(), context.WithoutCancel(ctx)
	defer func() { s.chargeDecoding(charging, c, int((time.Since(began)+decodingUnit-1)/decodingUnit)) }()
	ctx, end := context.WithTimeout(ctx, decodeLimit)
	defer end()
	return s.imageMaker(ctx, imageField, file)
}

// readerFunc is a function that reads.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// storeImage stores the objects of a row and shows it.
func (s *Server) storeImage(ctx context.Context, i *models.Image, made *images.Made) error {
	err := s.images.Put(ctx, i.Name, made.Image.Type, made.Image.Data)
	if err == nil {
		err = s.images.Put(ctx, images.ThumbName(i.Name), made.Thumb.Type, made.Thumb.Data)
	}
	if err == nil {
		return s.store.ShowImage(ctx, i.ID)
	}
	// The job deletes a pending row after a day, and this one now: the user needs the room.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if dropped := s.store.DropImage(after, i.ID); dropped != nil {
		err = errors.Join(err, dropped)
	}
	return models.Unavailable("The image cannot be stored now; try again.", err)
}

// imageOfPath reads the image that the path names. A hidden one exists only for its user and for moderators.
func (s *Server) imageOfPath(c *fiber.Ctx) (*models.Image, error) {
	i, err := s.store.ImageByName(c.UserContext(), c.Params("id"))
	if err != nil {
		return nil, err
	}
	v := viewer(c)
	if i.Hidden && (v == nil || v.UserID != i.UserID && v.Role < models.RoleModerator) {
		return nil, models.ErrNoImage()
	}
	return i, nil
}

// readImage sends an image, or its thumbnail, or the part of it that a header Range asks for. The bytes under an
// address never change. Caches ask again after an hour, because the image may have been deleted or hidden.
func (s *Server) readImage(thumbnail bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		i, err := s.imageOfPath(c)
		if err != nil {
			return err
		}
		random := i.Name[:16] // the rest is the size
		object, tag, size := i.Name, `"`+random+`"`, i.Bytes
		if thumbnail {
			object, tag, size = images.ThumbName(i.Name), `"`+random+`-thumb"`, i.ThumbnailBytes
		}
		if tags, ok := parseTags(c.Get(fiber.HeaderIfNoneMatch), true); ok && slices.Contains(tags, tag) {
			setCached(c, tag, i.Hidden)
			return c.SendStatus(http.StatusNotModified)
		}
		part := rangeOf(c, tag, size)
		if s.images == nil {
			return models.Unavailable("The image cannot be read now; try again.", nil)
		}
		body, stored, err := s.images.Open(c.UserContext(), object, part.from)
		if errors.Is(err, images.ErrMissing) {
			return models.Errorf(models.CodeNotFound, "The image does not exist.")
		}
		if err == nil && stored != size {
			err = errors.Join(errStoredSize, body.Close())
		}
		if err != nil {
			return models.Unavailable("The image cannot be read now; try again.", err)
		}
		if a, ok := c.Locals(answerKey).(*answer); ok {
			if err := a.send(); err != nil {
				return errors.Join(err, body.Close())
			}
		}
		setCached(c, tag, i.Hidden)
		c.Set(fiber.HeaderAcceptRanges, "bytes")
		c.Set(fiber.HeaderContentType, i.Type)
		if part.partial {
			c.Status(http.StatusPartialContent)
			c.Set(fiber.HeaderContentRange, fmt.Sprintf("bytes %d-%d/%d", part.from, part.from+part.size-1, size))
		}
		if c.Method() != fiber.MethodHead {
			s.chargeBytes(c, part.size)
		}
		c.Context().SetBodyStream(newSending(c, body, part.size), int(part.size))
		return nil
	}
}

var errStoredSize = errors.New("the stored object is not of the size in its row")

// byteRange is the part of an object that is sent.
type byteRange struct {
	from, size int64
	partial    bool
}

// rangeOf returns the part that a request asks for: all, unless it has one Range of this version that exists.
func rangeOf(c *fiber.Ctx, tag string, size int64) byteRange {
	all := byteRange{size: size}
	asked := c.Request().Header.Peek(fiber.HeaderRange)
	version := c.Get(fiber.HeaderIfRange)
	spec, ok := bytes.CutPrefix(asked, []byte("bytes="))
	if !ok || !rangePattern.Match(spec) || version != "" && version != tag {
		return all
	}
	from, to, err := fasthttp.ParseByteRange(asked, int(size))
	if err != nil || from > to {
		return all
	}
	return byteRange{int64(from), int64(to-from) + 1, true}
}

// rangePattern is one range. Several are answered with all of the object, as RFC 9110 allows.
var rangePattern = regexp.MustCompile(`^(\d{1,18}-\d{0,18}|-\d{1,18})$`)

// slowestDownload is the rate at which a client must read an image, in bytes a second, after writeTimeout.
const slowestDownload = 16 << 10

// sending is the body of an answer that a client reads. The client has writeTimeout for each piece. For all that it has
// read, it has writeTimeout and a time in proportion, so that one who is too slow is disconnected soon.
type sending struct {
	io.Reader
	io.Closer

	conn  net.Conn
	began time.Time
	read  int64 // bytes, of which the kernel may hold some
}

func newSending(c *fiber.Ctx, body io.ReadCloser, size int64) *sending {
	return &sending{io.LimitReader(body, size), body, c.Context().Conn(), time.Now(), 0}
}

func (s *sending) Read(p []byte) (int, error) {
	deadline := time.Now().Add(writeTimeout)
	last := s.began.Add(writeTimeout + time.Duration(s.read)*time.Second/slowestDownload)
	if last.Before(deadline) {
		deadline = last
	}
	if err := s.conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := s.Reader.Read(p)
	s.read += int64(n)
	return n, err
}

// setCached sets the headers of the bytes of an image. Unless it is hidden, caches may keep them, and pages of other
// origins may show them.
func setCached(c *fiber.Ctx, tag string, hidden bool) {
	c.Set(fiber.HeaderETag, tag)
	c.Vary(fiber.HeaderAuthorization)
	if hidden {
		c.Set(fiber.HeaderCacheControl, uncached)
		return
	}
	c.Set(fiber.HeaderCacheControl, "public, max-age=3600")
	c.Set("Cross-Origin-Resource-Policy", "cross-origin")
}

func (s *Server) deleteImage(c *fiber.Ctx) error {
	i, err := s.imageOfPath(c)
	if err != nil {
		return err
	}
	if err := allowOn(c, i.UserID); err != nil {
		return err
	}
	if err := s.store.DeleteImage(c.UserContext(), viewerID(c), i); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// listMyImages lists the viewer's images, the latest first.
func (s *Server) listMyImages(c *fiber.Ctx) error { return s.replyImages(c, viewerID(c)) }

func (s *Server) replyImages(c *fiber.Ctx, userID int64) error {
	return replyList(s, c, listing[models.Image, imageJSON]{
		name: ofUser("images", userID),
		read: func(ctx context.Context, at position) ([]models.Image, *models.ListKey, error) {
			return all(s.store.Images(ctx, userID, at.id(), at.limit))
		},
		key:  (*models.Image).Key,
		show: each(newImageJSON),
	})
}

// listImagesOf lists the images of a user for moderators, the latest first.
func (s *Server) listImagesOf(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	return s.replyImages(c, id)
}

// imageDetailJSON is an image as moderators read it.
type imageDetailJSON struct {
	imageJSON
	User namedJSON      `json:"user"`
	Uses []imageUseJSON `json:"uses"`
}

type imageUseJSON struct {
	Type string `json:"type"`
	ID   int64  `json:"id"`
}

func (s *Server) readImageForModerators(c *fiber.Ctx) error {
	ctx := c.UserContext()
	i, err := s.store.ImageByName(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	account, _, err := s.store.AccountByID(ctx, i.UserID)
	if err != nil {
		return err
	}
	uses, err := s.store.ImageUses(ctx, i.ID)
	if err != nil {
		return err
	}
	out := imageDetailJSON{newImageJSON(i), namedJSON{i.UserID, account.User.Username}, make([]imageUseJSON, len(uses))}
	for n, use := range uses {
		out.Uses[n] = imageUseJSON(use)
	}
	return c.JSON(out)
}
