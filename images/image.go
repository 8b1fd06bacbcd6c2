// Package images turns what users upload into images that are safe to show, and keeps them in a folder or in storage
// that speaks S3.
//
// Make decodes an upload and encodes its pixels again. Nothing else of the upload is kept: not its name, its metadata
// or what follows the image in the file. What is not pixels decides two things alone: which way is up, and which colors
// the numbers mean.
//
// A Store holds objects by name. It knows nothing of users and texts: MySQL does, and decides what is deleted.
package images

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"runtime/debug"
	"slices"

	"likewise/models"
)

// Bounds on an upload, and on what is made of it.
const (
	MaxBytes  = 10 << 20   // of the file
	MaxPixels = 40_000_000 // width times height
	MaxMemory = 256 << 20  // bytes that Make holds at most, with the file
	MaxSide   = 2048       // of the image, in pixels; larger ones are reduced
	ThumbSide = 480        // of the thumbnail
	MaxStored = 4 << 20    // bytes of the image; its thumbnail has less than a quarter of them

	maxBlocks   = 16_000_000 // that the scans of a JPEG visit: each block of the largest picture some ten times
	largeMemory = 16 << 20   // from here on, the memory of an image is returned to the system at once
)

// Picture is a file that Make has encoded.
type Picture struct {
	Type          string // "image/jpeg" or "image/png"
	Width, Height int
	Data          []byte
}

// Made is an image and its thumbnail.
type Made struct{ Image, Thumb Picture }

// Make decodes a file, whose type it takes from the content alone, and encodes it again, with an orientation in its
// metadata applied, and in the colors of sRGB. Of an animation it keeps the first frame. The result is a PNG if a pixel
// is transparent or if the file was lossless and a PNG is not much larger, and else a JPEG.
//
// CodeInvalid for the field: the file is not an image of Types, it is damaged, or it exceeds a bound. CodeUnavailable:
// ctx ended before it was decoded. The work is bounded by the header, so that only a busy machine takes long.
//
// Make holds at most MaxMemory bytes while it runs, and goes on for less than a second after ctx has ended. The caller
// bounds how many run at once.
func Make(ctx context.Context, field string, file []byte) (*Made, error) {
	h, memory, err := inspect(field, file)
	if err != nil {
		return nil, err
	}
	if memory > largeMemory {
		defer debug.FreeOSMemory()
	}
	large, err := h.decode(ctx)
	if ctx.Err() != nil {
		return nil, models.Unavailable("The image cannot be decoded now; try again.", ctx.Err())
	}
	if err != nil {
		return nil, fault(field, errDamaged)
	}
	return encode(turned(large, orientation(h.exif)), h.lossless, len(file))
}

// inspect returns what a file says of itself, and the bytes that Make will hold for it. It decodes nothing.
// CodeInvalid: the file is not an image of Types, or its header exceeds a bound.
func inspect(field string, file []byte) (h *header, memory int64, err error) {
	i := slices.IndexFunc(formats, func(f format) bool { return f.magic(file) })
	if i < 0 {
		return nil, 0, models.Invalid(field, models.NotOneOf(Types()...).Saying(
			"must be a JPEG, PNG, GIF or WebP image; its name and its declared type do not matter"))
	}
	if h, err = formats[i].read(file); err != nil {
		return nil, 0, fault(field, err)
	}
	if memory, err = h.check(int64(len(file))); err != nil {
		return nil, 0, fault(field, err)
	}
	return h, memory, nil
}

var (
	errWork   = errors.New("the file takes too much work to decode")
	errMemory = errors.New("the file takes too much memory to decode")
)

// boundError means that a file exceeds a bound.
type boundError struct {
	limit int64
	unit  string
}

func (o *boundError) Error() string { return fmt.Sprintf("the file exceeds %d %s", o.limit, o.unit) }

// fault returns the error of a file.
func fault(field string, err error) error {
	if over, ok := errors.AsType[*boundError](err); ok {
		return models.Invalid(field, models.TooLarge(over.limit, over.unit))
	}
	if errors.Is(err, errWork) {
		return models.Invalid(field, models.BadFormat(models.FormatImage,
			"has too many scans to decode; save it as another JPEG"))
	}
	if errors.Is(err, errMemory) {
		return models.Invalid(field, models.TooLarge(MaxMemory, "bytes in memory").Saying(
			"takes more than %d MiB of memory to decode; reduce it, or save it as a plain JPEG", MaxMemory>>20))
	}
	return models.Invalid(field, models.BadFormat(models.FormatImage, "is damaged: it cannot be decoded"))
}

// check returns the bytes that Make will hold for a file of this size, or an error if the header exceeds a bound.
func (h *header) check(size int64) (memory int64, err error) {
	width, height := int64(h.canvas.X), int64(h.canvas.Y)
	if err := tooManyPixels(width, height); err != nil {
		return 0, err
	}
	if h.work > maxBlocks {
		return 0, errWork
	}
	reduced := h.reducedSize()
	// The decoded pixels are dropped before the reduced ones are encoded, which takes less.
	memory = size + max(h.memory, h.decoded+4*int64(reduced.X)*int64(reduced.Y))
	if memory > MaxMemory {
		return 0, errMemory
	}
	return memory, nil
}

// tooManyPixels returns the error of a picture of this size, or nil.
func tooManyPixels(width, height int64) error {
	switch {
	case width < 1 || height < 1:
		return errDamaged
	case width > MaxPixels || height > MaxPixels || width*height > MaxPixels:
		return &boundError{MaxPixels, "pixels"}
	}
	return nil
}

// decode returns the picture, no larger than it is kept, and in sRGB.
func (h *header) decode(ctx context.Context) (*image.RGBA, error) {
	pixels, err := h.pixels(func(parts ...[]byte) io.Reader {
		return &chunkedReader{ctx, slices.Clone(parts)}
	})
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return h.shown(pixels), nil
}
