package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"likewise/handlers/admission"
	"likewise/handlers/pages"
	"likewise/images"
	"likewise/models"
)

// imageField is the name of the part of a body that has the file.
const imageField = "file"

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
	return admission.ReadBody(r, stream)
}

// uploadImage stores an image. Its order is that of its costs: what the file is, how much room is left, a row that
// names the objects, the objects, and last the mark that shows the image. Wherever that ends, the cron job deletes what
// is left.
func (s *Server) uploadImage(c *fiber.Ctx) error {
	if s.images == nil {
		return models.Errorf(models.CodeForbidden, "This site takes no images.")
	}
	if err := s.rates.MayDecode(c.UserContext(), s.client(c)); err != nil {
		return err
	}
	up := &admission.Upload{User: viewerID(c), From: s.clientKey(c), Conn: c.Context().Conn(), Began: time.Now()}
	if err := s.uploads.Enter(up); err != nil {
		return err
	}
	defer s.uploads.Leave(up)
	file, err := s.receiveFile(c, up)
	if err != nil {
		return err
	}
	if !s.uploads.Received(up) {
		return fiber.ErrRequestTimeout
	}
	// Receiving had a time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), s.timeout+admission.DecodeWait)
	defer cancel()
	made, err := s.makeImage(ctx, c, file)
	if err != nil {
		return err
	}
	i := &models.Image{UserID: viewerID(c), Type: made.Image.Type, Width: made.Image.Width, Height: made.Image.Height,
		Bytes: int64(len(made.Image.Data)), ThumbnailBytes: int64(len(made.Thumb.Data))}
	if err := s.media.AddImage(ctx, i, imageField, s.imageRoom); err != nil {
		return err
	}
	if err := s.storeImage(ctx, i, made); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, models.ImagePath+i.Name)
	return c.Status(http.StatusCreated).JSON(newImageJSON(i))
}

// receiveFile reads the file of an upload. While the client sends it, other requests of its address are processed.
func (s *Server) receiveFile(c *fiber.Ctx, up *admission.Upload) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || kind != fiber.MIMEMultipartForm || params["boundary"] == "" {
		return nil, fiber.ErrUnsupportedMediaType
	}
	if c.Request().Header.ContentLength() > admission.MaxUpload {
		return nil, fiber.ErrRequestEntityTooLarge
	}
	if a, ok := c.Locals(answerKey).(*admission.Answer); ok {
		defer a.Pause()()
	}
	stream := c.Context().RequestBodyStream()
	body := &io.LimitedReader{R: readerFunc(func(p []byte) (int, error) { return up.Count(stream.Read(p)) }),
		N: admission.MaxUpload + 1}
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
	done, err := s.uploads.AwaitDecoding(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	began, charging := time.Now(), context.WithoutCancel(ctx)
	defer func() { s.rates.ChargeDecoding(charging, s.client(c), time.Since(began)) }()
	ctx, end := context.WithTimeout(ctx, admission.DecodeLimit)
	defer end()
	return s.imageMaker(ctx, imageField, file)
}

// readerFunc is a function that reads.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// dropTimeout is for removing the row of an image that was not stored.
const dropTimeout = 10 * time.Second

// storeImage stores the objects of a row and shows it.
func (s *Server) storeImage(ctx context.Context, i *models.Image, made *images.Made) error {
	err := s.images.Put(ctx, i.Name, made.Image.Type, made.Image.Data)
	if err == nil {
		err = s.images.Put(ctx, images.ThumbName(i.Name), made.Thumb.Type, made.Thumb.Data)
	}
	if err == nil {
		return s.media.ShowImage(ctx, i.ID)
	}
	// The job deletes a pending row after a day, and this one now: the user needs the room.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if dropped := s.media.DropImage(after, i.ID); dropped != nil {
		err = errors.Join(err, dropped)
	}
	return models.Unavailable("The image cannot be stored now; try again.", err)
}

// imageOfPath reads the image that the path names. A hidden one exists only for its user and for moderators.
func (s *Server) imageOfPath(c *fiber.Ctx) (*models.Image, error) {
	i, err := s.media.ImageByName(c.UserContext(), c.Params("id"))
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
		if tags, ok := pages.ParseTags(c.Get(fiber.HeaderIfNoneMatch), true); ok && slices.Contains(tags, tag) {
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
		if a, ok := c.Locals(answerKey).(*admission.Answer); ok {
			if err := a.Send(); err != nil {
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
			s.rates.ChargeBytes(s.client(c), part.size)
		}
		c.Context().SetBodyStream(admission.NewSending(c.Context().Conn(), body, part.size), int(part.size))
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

// setCached sets the headers of the bytes of an image. Unless it is hidden, caches may keep them, and pages of other
// origins may show them.
func setCached(c *fiber.Ctx, tag string, hidden bool) {
	c.Set(fiber.HeaderETag, tag)
	c.Vary(fiber.HeaderAuthorization)
	if hidden {
		c.Set(fiber.HeaderCacheControl, pages.Uncached)
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
	if err := s.media.DeleteImage(c.UserContext(), viewerID(c), i); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// listMyImages lists the viewer's images, the latest first.
func (s *Server) listMyImages(c *fiber.Ctx) error { return s.replyImages(c, viewerID(c)) }

func (s *Server) replyImages(c *fiber.Ctx, userID int64) error {
	return replyList(s, c, pages.Listing[models.Image, imageJSON]{
		Name: pages.OfUser("images", userID),
		Read: func(ctx context.Context, at pages.Position) ([]models.Image, *models.ListKey, error) {
			return pages.All(s.media.Images(ctx, userID, at.ID(), at.Limit))
		},
		Key:  (*models.Image).Key,
		Show: pages.Each(newImageJSON),
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
	i, err := s.media.ImageByName(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	account, _, err := s.accounts.AccountByID(ctx, i.UserID)
	if err != nil {
		return err
	}
	uses, err := s.media.ImageUses(ctx, i.ID)
	if err != nil {
		return err
	}
	out := imageDetailJSON{newImageJSON(i), namedJSON{i.UserID, account.User.Username}, make([]imageUseJSON, len(uses))}
	for n, use := range uses {
		out.Uses[n] = imageUseJSON(use)
	}
	return c.JSON(out)
}
