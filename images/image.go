// Package images turns what users upload into images that are safe to show, and keeps them in a folder or in storage
// that speaks S3.
//
// Make decodes an upload and encodes its pixels again. Nothing else of the upload is kept: not its name, its metadata
// or what follows the image in the file.
//
// A Store holds objects by name. It knows nothing of users and texts: MySQL does, and decides what is deleted.
package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bep/imagemeta"
	"golang.org/x/image/draw"
	"golang.org/x/image/riff"
	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
	"golang.org/x/image/webp"

	"likewise/models"
)

// Bounds on an upload, and on what is made of it.
const (
	MaxBytes  = 10 << 20   // of the file
	MaxPixels = 40_000_000 // width times height, before anything is decoded
	MaxSide   = 2048       // of the image, in pixels; larger ones are reduced
	ThumbSide = 480        // of the thumbnail

	jpegQuality = 85
	decodeLimit = 10 * time.Second // for reading the file; a few bytes of a JPEG can ask for much work
	largePixels = 4_000_000        // from here on, the memory of a decoded image is returned to the system at once
)

// Picture is a file that Make has encoded.
type Picture struct {
	Type          string // "image/jpeg" or "image/png"
	Width, Height int
	Data          []byte
}

// Made is an image and its thumbnail.
type Made struct{ Image, Thumb Picture }

// format is a type of file that is accepted.
type format struct {
	name   string
	kind   imagemeta.ImageFormat // 0: its metadata has no orientation
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
	magic  func(head []byte) bool
}

var formats = []format{
	{"image/jpeg", imagemeta.JPEG, jpeg.DecodeConfig, jpeg.Decode, begins("\xff\xd8\xff")},
	{"image/png", imagemeta.PNG, png.DecodeConfig, png.Decode, begins("\x89PNG\r\n\x1a\n")},
	{"image/gif", 0, gif.DecodeConfig, gif.Decode, func(head []byte) bool { // gif.Decode reads the first frame alone
		return begins("GIF87a")(head) || begins("GIF89a")(head)
	}},
	{"image/webp", imagemeta.WebP, webpConfig, webp.Decode, func(head []byte) bool {
		return begins("RIFF")(head) && len(head) > 12 && string(head[8:12]) == "WEBP"
	}},
}

func begins(with string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(with)) }
}

// Types lists the types that Make accepts.
func Types() []string {
	types := make([]string, len(formats))
	for i, f := range formats {
		types[i] = f.name
	}
	return types
}

// Make decodes a file, whose type it takes from the content alone, and encodes it again: as PNG if a pixel is
// transparent, else as JPEG, with an orientation in its metadata applied. Of an animation it keeps the first frame.
// CodeInvalid for the field: the file is not an image of Types, it is damaged, or it exceeds a bound.
//
// Make holds up to 15 bytes for each pixel while it runs. The caller bounds how many run at once.
func Make(ctx context.Context, field string, file []byte) (*Made, error) {
	i := slices.IndexFunc(formats, func(f format) bool { return f.magic(file) })
	if i < 0 {
		return nil, models.Invalid(field, models.NotOneOf(Types()...).Saying(
			"must be a JPEG, PNG, GIF or WebP image; its name and its declared type do not matter"))
	}
	f := formats[i]
	config, err := f.config(bytes.NewReader(file))
	if err != nil || config.Width < 1 || config.Height < 1 {
		return nil, damaged(field)
	}
	if int64(config.Width)*int64(config.Height) > MaxPixels {
		return nil, models.Invalid(field, models.TooLarge(MaxPixels, "pixels"))
	}
	if config.Width*config.Height > largePixels {
		defer debug.FreeOSMemory()
	}
	ctx, cancel := context.WithTimeout(ctx, decodeLimit)
	defer cancel()
	pixels, err := f.decode(&limitedReader{ctx, bytes.NewReader(file)})
	if ctx.Err() != nil {
		return nil, models.Invalid(field, models.BadFormat(models.FormatImage, "takes too long to decode"))
	}
	if err != nil {
		return nil, damaged(field)
	}
	large := turned(fit(pixels, MaxSide), orientation(f, file))
	thumb := fit(large, ThumbSide)
	opaque := large.Opaque()
	made := &Made{}
	if made.Image, err = encode(large, opaque); err != nil {
		return nil, err
	}
	made.Thumb, err = encode(thumb, opaque)
	return made, err
}

func damaged(field string) error {
	return models.Invalid(field, models.BadFormat(models.FormatImage, "is damaged: it cannot be decoded"))
}

// limitedReader reads until its context ends. A decoder cannot be stopped otherwise.
type limitedReader struct {
	ctx context.Context //nolint:containedctx // of one call of Make
	in  io.Reader
}

func (r *limitedReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(p)
}

// webpConfig returns the largest size that any part of a WebP file declares. The decoder allocates by the size of the
// part that holds the pixels, which may differ from that of the file.
func webpConfig(in io.Reader) (image.Config, error) {
	kind, parts, err := riff.NewReader(in)
	if err != nil || kind != (riff.FourCC{'W', 'E', 'B', 'P'}) {
		return image.Config{}, errors.Join(errNotWebP, err)
	}
	largest := image.Config{ColorModel: color.NRGBAModel}
	grow := func(width, height int) {
		largest.Width, largest.Height = max(largest.Width, width), max(largest.Height, height)
	}
	for {
		id, length, data, err := parts.Next()
		if errors.Is(err, io.EOF) {
			return largest, nil
		}
		if err != nil {
			return image.Config{}, err
		}
		switch string(id[:]) {
		case "VP8X":
			var head [10]byte
			if _, err := io.ReadFull(data, head[:]); err != nil {
				return image.Config{}, err
			}
			side := func(b []byte) int { return 1 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16 }
			grow(side(head[4:]), side(head[7:]))
		case "VP8 ":
			d := vp8.NewDecoder()
			d.Init(data, int(length))
			head, err := d.DecodeFrameHeader()
			if err != nil {
				return image.Config{}, err
			}
			grow(head.Width, head.Height)
		case "VP8L":
			head, err := vp8l.DecodeConfig(data)
			if err != nil {
				return image.Config{}, err
			}
			grow(head.Width, head.Height)
		}
	}
}

var errNotWebP = errors.New("not a WebP file")

// orientation returns the orientation in the metadata of a file, as EXIF numbers them; 1, upright, if there is none.
func orientation(f format, file []byte) int {
	upright := 1
	if f.kind == 0 {
		return upright
	}
	found := upright
	_, err := imagemeta.Decode(imagemeta.Options{
		R: bytes.NewReader(file), ImageFormat: f.kind, Sources: imagemeta.EXIF, Timeout: time.Second,
		ShouldHandleTag: func(tag imagemeta.TagInfo) bool {
			return tag.Tag == "Orientation" && tag.Namespace == "IFD0"
		},
		HandleTag: func(tag imagemeta.TagInfo) error {
			if n, ok := tag.Value.(uint16); ok && n >= 1 && n <= 8 {
				found = int(n)
			}
			return imagemeta.ErrStopWalking
		},
		Warnf: func(string, ...any) {},
	})
	if err != nil {
		return upright // metadata that cannot be read is dropped as all metadata is
	}
	return found
}

// fit returns a copy of the picture, reduced so that no side is longer than side.
//
// It halves the picture while that is possible, so that each pixel is the mean of four, and samples the rest of the way
// bilinearly. The kernels of package draw would need hundreds of megabytes in between.
func fit(from image.Image, side int) *image.RGBA {
	width, height := from.Bounds().Dx(), from.Bounds().Dy()
	for max(width, height) >= 2*side {
		width, height = max(1, width/2), max(1, height/2)
		from = scaled(from, width, height)
	}
	if longest := max(width, height); longest > side {
		width, height = max(1, width*side/longest), max(1, height*side/longest)
	}
	return scaled(from, width, height)
}

func scaled(from image.Image, width, height int) *image.RGBA {
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	if from.Bounds().Dx() == width && from.Bounds().Dy() == height {
		draw.Draw(to, to.Bounds(), from, from.Bounds().Min, draw.Src)
	} else {
		draw.ApproxBiLinear.Scale(to, to.Bounds(), from, from.Bounds(), draw.Src, nil)
	}
	return to
}

// turned returns the picture as it is meant to be seen, for an orientation of EXIF.
func turned(from *image.RGBA, turn int) *image.RGBA {
	if turn == 1 {
		return from
	}
	width, height := from.Bounds().Dx(), from.Bounds().Dy()
	place := func(x, y int) (int, int) { // of the source's pixel (x, y)
		switch turn {
		case 2:
			return width - 1 - x, y
		case 3:
			return width - 1 - x, height - 1 - y
		case 4:
			return x, height - 1 - y
		case 5:
			return y, x
		case 6:
			return height - 1 - y, x
		case 7:
			return height - 1 - y, width - 1 - x
		default:
			return y, width - 1 - x
		}
	}
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	if turn >= 5 {
		to = image.NewRGBA(image.Rect(0, 0, height, width))
	}
	for y := range height {
		for x := range width {
			tx, ty := place(x, y)
			copy(to.Pix[to.PixOffset(tx, ty):][:4], from.Pix[from.PixOffset(x, y):])
		}
	}
	return to
}

func encode(from *image.RGBA, opaque bool) (Picture, error) {
	p := Picture{Type: "image/png", Width: from.Bounds().Dx(), Height: from.Bounds().Dy()}
	var out bytes.Buffer
	var err error
	if opaque {
		p.Type = "image/jpeg"
		err = jpeg.Encode(&out, from, &jpeg.Options{Quality: jpegQuality})
	} else {
		err = png.Encode(&out, from)
	}
	if err != nil {
		return Picture{}, fmt.Errorf("encode an image: %w", err)
	}
	p.Data = bytes.Clone(out.Bytes())
	return p, nil
}
