package images

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"math"
)

const (
	typeJPEG = "image/jpeg"
	typePNG  = "image/png"

	smallPNG  = 512 << 10 // bytes: a PNG of at most so many is never worth losing details
	smallJPEG = 64 << 10  // bytes: a JPEG of at most so many keeps its quality, however small the file was
)

// encode returns the picture and its thumbnail, both of one type. A picture that is opaque becomes a JPEG, unless the
// file was lossless and a PNG has at most twice the bytes: a drawing or a screenshot stays sharp, and a photo stays
// small. size is that of the file.
func encode(large *image.RGBA, lossless bool, size int) (*Made, error) {
	opaque := large.Opaque()
	var small, exact []byte
	var err error
	if opaque {
		if small, err = asJPEG(large, max(size, smallJPEG)); err != nil {
			return nil, err
		}
	}
	if lossless || !opaque {
		if exact, err = asPNG(large); err != nil {
			return nil, err
		}
	}
	made := &Made{}
	if opaque && (!lossless || len(exact) > max(smallPNG, 2*len(small))) {
		made.Image = picture(typeJPEG, large, small)
	} else {
		for len(exact) > MaxStored { // as much noise as this is in no picture that is worth its size
			shrink := min(0.9, math.Sqrt(MaxStored/float64(len(exact))))
			large = fit(large, max(1, int(shrink*float64(max(large.Rect.Dx(), large.Rect.Dy())))))
			if exact, err = asPNG(large); err != nil {
				return nil, err
			}
		}
		made.Image = picture(typePNG, large, exact)
	}
	thumb := fit(large, ThumbSide)
	if made.Image.Type == typeJPEG {
		small, err = asJPEG(thumb, smallJPEG)
		made.Thumb = picture(typeJPEG, thumb, small)
		return made, err
	}
	exact, err = asPNG(thumb)
	made.Thumb = picture(typePNG, thumb, exact)
	return made, err
}

func picture(kind string, p *image.RGBA, data []byte) Picture {
	return Picture{Type: kind, Width: p.Rect.Dx(), Height: p.Rect.Dy(), Data: data}
}

func asPNG(p *image.RGBA) ([]byte, error) {
	var out bytes.Buffer
	if err := png.Encode(&out, p); err != nil {
		return nil, fmt.Errorf("encode an image: %w", err)
	}
	return bytes.Clone(out.Bytes()), nil
}

// asJPEG returns a JPEG of the best quality with which it has no more bytes than most, and of the worst one if none
// has.
func asJPEG(p *image.RGBA, limit int) ([]byte, error) {
	var out bytes.Buffer
	for _, quality := range []int{85, 75, 60} {
		out.Reset()
		if err := jpeg.Encode(&out, p, &jpeg.Options{Quality: quality}); err != nil {
			return nil, fmt.Errorf("encode an image: %w", err)
		}
		if out.Len() <= limit {
			break
		}
	}
	return bytes.Clone(out.Bytes()), nil
}
