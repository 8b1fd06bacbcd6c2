package handlers

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"likewise/images"
	"likewise/models"
)

// Bounds on uploads. A process holds at most maxUploads files, and the pixels of one image.
const (
	maxUpload     = images.MaxBytes + 64<<10 // bytes of a body: the file, and what surrounds it
	maxUploads    = 8
	uploadTimeout = 30 * time.Second // for receiving a body
	decodeWait    = 8 * time.Second  // for a turn to decode
)

// imageField is the name of the part of a body that has the file.
const imageField = "file"

// uploads bounds the work of uploads in a process.
type uploads struct {
	bodies   chan struct{} // a place for each body that is held
	decoding chan struct{} // a place for the image that is being decoded
	of       sync.Map      // int64: users who are uploading
}

func newUploads() *uploads {
	return &uploads{bodies: make(chan struct{}, maxUploads), decoding: make(chan struct{}, 1)}
}

type imageJSON struct {
	ID           string    `json:"id"`
	URL          string    `json:"url"`
	ThumbnailURL string    `json:"thumbnail_url"`
	Type         string    `json:"type"`
	Width        int       `json:"width"`
	Height       int       `json:"height"`
	Bytes        int64     `json:"bytes"`
	CreatedAt    time.Time `json:"created_at"`
}

const thumbnailPath = "/thumbnail"

func newImageJSON(i *models.Image) imageJSON {
	url := models.ImagePath + i.Name
	return imageJSON{i.Name, url, url + thumbnailPath, i.Type, i.Width, i.Height, i.Bytes, i.CreatedAt}
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
	if _, twice := s.uploads.of.LoadOrStore(viewerID(c), nil); twice {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: time.Second,
			Message: "You are already uploading an image; wait until that has finished."}
	}
	defer s.uploads.of.Delete(viewerID(c))
	select {
	case s.uploads.bodies <- struct{}{}:
		defer func() { <-s.uploads.bodies }()
	default:
		return models.Unavailable("Too many images are being uploaded; try again.", errOverload)
	}
	file, err := s.receiveFile(c)
	if err != nil {
		return err
	}
	// Receiving had a time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), s.timeout+decodeWait)
	defer cancel()
	made, err := s.makeImage(ctx, file)
	if err != nil {
		return err
	}
	i := &models.Image{UserID: viewerID(c), Type: made.Image.Type, Width: made.Image.Width, Height: made.Image.Height,
		Bytes: int64(len(made.Image.Data)), ThumbnailBytes: int64(len(made.Thumb.Data))}
	if err := s.store.AddImage(ctx, i, imageField); err != nil {
		return err
	}
	if err := s.storeImage(ctx, i, made); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, models.ImagePath+i.Name)
	return c.Status(http.StatusCreated).JSON(newImageJSON(i))
}

// receiveFile reads the file of an upload. While the client sends it, other requests of its address are processed.
func (s *Server) receiveFile(c *fiber.Ctx) ([]byte, error) {
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
	body := &io.LimitedReader{R: c.Context().RequestBodyStream(), N: maxUpload + 1}
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

// makeImage decodes and encodes a file when it is its turn.
func (s *Server) makeImage(ctx context.Context, file []byte) (*images.Made, error) {
	wait, cancel := context.WithTimeout(ctx, decodeWait)
	defer cancel()
	select {
	case s.uploads.decoding <- struct{}{}:
		defer func() { <-s.uploads.decoding }()
	case <-wait.Done():
		return nil, models.Unavailable("Too many images are being uploaded; try again.", errOverload)
	}
	return images.Make(ctx, imageField, file)
}

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
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if dropped := s.store.DropImage(after, i.ID); dropped != nil {
		err = errors.Join(err, dropped)
	}
	return models.Unavailable("The image cannot be stored now; try again.", err)
}

// imageOfPath reads the image that the path names.
func (s *Server) imageOfPath(c *fiber.Ctx) (*models.Image, error) {
	return s.store.ImageByName(c.UserContext(), c.Params("id"))
}

// readImage sends an image, or its thumbnail. The bytes under an address never change, so caches need not ask again.
func (s *Server) readImage(thumbnail bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		i, err := s.imageOfPath(c)
		if err != nil {
			return err
		}
		random := i.Name[:16] // the rest is the size
		object, tag := i.Name, `"`+random+`"`
		if thumbnail {
			object, tag = images.ThumbName(i.Name), `"`+random+`-thumb"`
		}
		if tags, ok := parseTags(c.Get(fiber.HeaderIfNoneMatch), true); ok && slices.Contains(tags, tag) {
			setCached(c, tag)
			return c.SendStatus(http.StatusNotModified)
		}
		if s.images == nil {
			return models.Unavailable("The image cannot be read now; try again.", nil)
		}
		body, size, err := s.images.Open(c.UserContext(), object)
		if errors.Is(err, images.ErrMissing) {
			return models.Errorf(models.CodeNotFound, "There is no such image.")
		}
		if err != nil {
			return models.Unavailable("The image cannot be read now; try again.", err)
		}
		setCached(c, tag)
		c.Set(fiber.HeaderContentType, i.Type)
		c.Set(fiber.HeaderContentLength, strconv.FormatInt(size, 10))
		c.Context().SetBodyStream(body, int(size))
		return nil
	}
}

// setCached sets the headers of bytes that everybody may keep. Pages of other origins may show them.
func setCached(c *fiber.Ctx, tag string) {
	c.Set(fiber.HeaderETag, tag)
	c.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
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
	ctx := models.WithRequestID(c.UserContext(), requestID(c))
	if err := s.store.DeleteImage(ctx, viewerID(c), i); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// listMyImages lists the viewer's images, the latest first.
func (s *Server) listMyImages(c *fiber.Ctx) error {
	return replyList(s, c, listing[models.Image, imageJSON]{
		name: ofUser("images", viewerID(c)),
		read: func(ctx context.Context, at position) ([]models.Image, *models.ListKey, error) {
			return all(s.store.Images(ctx, viewerID(c), at.id(), at.limit))
		},
		key:  (*models.Image).Key,
		show: each(newImageJSON),
	})
}
