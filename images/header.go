package images

import (
	"bytes"
	"context"
	"image"
	"io"
)

// header is what a file says of itself before any pixel is decoded. Only what decoding needs is handed to a decoder, so
// that nothing else in a file can make it fail.
type header struct {
	canvas   image.Point // the size of the picture
	at       image.Point // the place of the pixels on the canvas; the rest of it is transparent
	memory   int64       // bytes that decoding holds, at most
	decoded  int64       // bytes of the decoded pixels
	work     int64       // blocks that decoding visits, at most; 0 if it visits each pixel a few times
	lossless bool        // the pixels are exact, as those of a screenshot are
	exif     []byte      // its metadata, without a prefix; nil if there is none
	colors   *colors     // what its numbers mean; nil: those of sRGB

	// pixels decodes the pixels. It reads nothing but what chunked returns.
	pixels func(chunked func(parts ...[]byte) io.Reader) (image.Image, error)
}

// step is how much of a file is read at a time. A few bytes of a JPEG can ask for much work.
const step = 256

// chunkedReader reads the parts of a file in small steps, until its context ends. A decoder cannot be stopped
// otherwise.
type chunkedReader struct {
	ctx   context.Context //nolint:containedctx // of one call of Make
	parts [][]byte
}

func (r *chunkedReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	for len(r.parts) > 0 && len(r.parts[0]) == 0 {
		r.parts = r.parts[1:]
	}
	if len(r.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.parts[0][:min(step, len(r.parts[0]))])
	r.parts[0] = r.parts[0][n:]
	return n, nil
}

// format is a type of file that is accepted.
type format struct {
	name  string
	magic func(file []byte) bool
	// read returns what a file says of itself. It decodes nothing, and takes time in proportion to the bytes.
	read func(file []byte) (*header, error)
}

var formats = []format{
	{"image/jpeg", begins("\xff\xd8\xff"), readJPEG},
	{"image/png", begins(pngMagic), readPNG},
	{"image/gif", func(file []byte) bool { return begins("GIF87a")(file) || begins("GIF89a")(file) }, readGIF},
	{"image/webp", func(file []byte) bool {
		return begins("RIFF")(file) && len(file) > 12 && string(file[8:12]) == "WEBP"
	}, readWebP},
}

func begins(with string) func([]byte) bool {
	return func(file []byte) bool { return bytes.HasPrefix(file, []byte(with)) }
}

// Types lists the types that Make accepts.
func Types() []string {
	types := make([]string, len(formats))
	for i, f := range formats {
		types[i] = f.name
	}
	return types
}
