package images_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/images"
	"likewise/models"
)

// picture returns a picture with a red left half and a blue right half.
func picture(width, height int) *image.RGBA {
	p := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := color.RGBA{R: 255, A: 255}
			if x >= width/2 {
				c = color.RGBA{B: 255, A: 255}
			}
			p.SetRGBA(x, y, c)
		}
	}
	return p
}

func asJPEG(t *testing.T, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, p, nil))
	return b.Bytes()
}

func asPNG(t *testing.T, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, p))
	return b.Bytes()
}

// withEXIF returns a JPEG with metadata: an orientation, and a place.
func withEXIF(t *testing.T, file []byte, orientation uint16) []byte {
	t.Helper()
	entry := func(tag, kind uint16, count, value uint32) []byte {
		b := binary.BigEndian.AppendUint16(nil, tag)
		b = binary.BigEndian.AppendUint16(b, kind)
		b = binary.BigEndian.AppendUint32(b, count)
		return binary.BigEndian.AppendUint32(b, value)
	}
	tiff := []byte("MM\x00*\x00\x00\x00\x08")
	tiff = binary.BigEndian.AppendUint16(tiff, 2)
	tiff = append(tiff, entry(0x0112, 3, 1, uint32(orientation)<<16)...)
	tiff = append(tiff, entry(0x8825, 4, 1, 38)...) // GPS IFD
	tiff = append(tiff, 0, 0, 0, 0)
	tiff = binary.BigEndian.AppendUint16(tiff, 2)
	tiff = append(tiff, entry(1, 2, 2, uint32('N')<<24)...)
	tiff = append(tiff, entry(2, 5, 3, 68)...)
	tiff = append(tiff, 0, 0, 0, 0)
	for _, n := range []uint32{47, 1, 22, 1, 5, 1} {
		tiff = binary.BigEndian.AppendUint32(tiff, n)
	}
	body := append([]byte("Exif\x00\x00"), tiff...)
	out := append([]byte{0xff, 0xd8, 0xff, 0xe1}, binary.BigEndian.AppendUint16(nil, uint16(len(body)+2))...)
	return append(append(out, body...), file[2:]...)
}

func decoded(t *testing.T, p images.Picture) image.Image {
	t.Helper()
	img, kind, err := image.Decode(bytes.NewReader(p.Data))
	require.NoError(t, err)
	assert.Equal(t, p.Type, "image/"+kind)
	assert.Equal(t, image.Pt(p.Width, p.Height), img.Bounds().Size())
	return img
}

func redness(p image.Image, x, y int) uint32 {
	red, _, _, _ := p.At(x, y).RGBA() //nolint:dogsled // that is its signature
	return red
}

// Each refused file has the code of its fault. All but the first few bytes of a bomb are never decoded.
func TestMake_refusesHostileFiles(t *testing.T) {
	t.Parallel()
	whole := asJPEG(t, picture(64, 48))
	for name, test := range map[string]struct {
		file []byte
		code models.FieldCode
	}{
		"an SVG with a script": {[]byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`),
			models.FieldNotOneOf},
		"HTML":                       {[]byte("<!DOCTYPE html><script>alert(1)</script>"), models.FieldNotOneOf},
		"a TIFF":                     {[]byte("II*\x00\x08\x00\x00\x00"), models.FieldNotOneOf},
		"nothing":                    {nil, models.FieldNotOneOf},
		"a truncated JPEG":           {whole[:len(whole)/2], models.FieldBadFormat},
		"the beginning of a JPEG":    {whole[:4], models.FieldBadFormat},
		"a PNG of 50,000×50,000":     {pngBomb(50_000, 50_000), models.FieldTooLarge},
		"a PNG with a side of 0":     {pngBomb(0, 5), models.FieldBadFormat},
		"JavaScript that is a GIF":   {[]byte("GIF89a/*\x00\x00\x00*/=1;alert(1)"), models.FieldBadFormat},
		"a WebP with a larger image": {webpBomb(), models.FieldTooLarge},
		"a WebP of nothing":          {[]byte("RIFF\x04\x00\x00\x00WEBP\x00"), models.FieldBadFormat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := images.Make(t.Context(), "file", test.file)
			assert.Nil(t, made)
			e, ok := errors.AsType[*models.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, models.CodeInvalid, e.Code)
			require.Len(t, e.Fields, 1)
			assert.Equal(t, "file", e.Fields[0].Field)
			assert.Equal(t, test.code, e.Fields[0].Code)
		})
	}
}

// pngBomb returns the header of a PNG of this size, with hardly any data.
func pngBomb(width, height uint32) []byte {
	head := binary.BigEndian.AppendUint32([]byte("IHDR"), width)
	head = append(binary.BigEndian.AppendUint32(head, height), 8, 2, 0, 0, 0)
	file := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head...)
	return binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(head))
}

// webpBomb returns a WebP whose header names a size of 1×1, and whose lossless data one of 16,384×16,384.
func webpBomb() []byte {
	part := func(id, data string) string {
		return id + string(binary.LittleEndian.AppendUint32(nil, uint32(len(data)))) + data
	}
	body := "WEBP" + part("VP8X", strings.Repeat("\x00", 10)) + part("VP8L", "\x2f\xff\xff\xff\x0f\x00")
	return []byte("RIFF" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(body)))) + body)
}

func TestMake_turnsAndDropsMetadata(t *testing.T) {
	t.Parallel()
	file := withEXIF(t, asJPEG(t, picture(64, 32)), 6)
	file = append(file, "PK\x03\x04 a trailing archive"...)
	made, err := images.Make(t.Context(), "file", file)
	require.NoError(t, err)
	for _, p := range []images.Picture{made.Image, made.Thumb} {
		assert.Equal(t, "image/jpeg", p.Type)
		assert.Equal(t, []int{32, 64}, []int{p.Width, p.Height})
		red, _, blue, _ := decoded(t, p).At(16, 8).RGBA()
		assert.Greater(t, red, uint32(0xc000), "the left half is above")
		assert.Less(t, blue, uint32(0x4000))
		_, _, blue, _ = decoded(t, p).At(16, 56).RGBA()
		assert.Greater(t, blue, uint32(0xc000), "the right half is below")
		assert.NotContains(t, string(p.Data), "Exif")
		assert.NotContains(t, string(p.Data), "archive")
	}
}

// Every orientation puts the corner of a picture where EXIF says that it is.
func TestMake_knowsEveryOrientation(t *testing.T) {
	t.Parallel()
	p := image.NewRGBA(image.Rect(0, 0, 64, 32))
	for i := range p.Pix {
		p.Pix[i] = 0xff
	}
	for y := range 16 {
		for x := range 16 {
			p.SetRGBA(x, y, color.RGBA{A: 255}) // the top left corner is black
		}
	}
	for turn, corner := range map[uint16]image.Point{
		1: {4, 4}, 2: {59, 4}, 3: {59, 27}, 4: {4, 27}, 5: {4, 4}, 6: {27, 4}, 7: {27, 59}, 8: {4, 59},
	} {
		made, err := images.Make(t.Context(), "file", withEXIF(t, asJPEG(t, p), turn))
		require.NoError(t, err)
		assert.Less(t, redness(decoded(t, made.Image), corner.X, corner.Y), uint32(0x2000), "orientation %d", turn)
	}
}

func TestMake_fitsAndKeepsTransparency(t *testing.T) {
	t.Parallel()
	made, err := images.Make(t.Context(), "file", asJPEG(t, picture(5000, 100)))
	require.NoError(t, err)
	assert.Equal(t, []int{2048, 40}, []int{made.Image.Width, made.Image.Height})
	assert.Equal(t, []int{480, 9}, []int{made.Thumb.Width, made.Thumb.Height})
	decoded(t, made.Image)

	hole := picture(600, 600)
	hole.SetRGBA(300, 300, color.RGBA{})
	made, err = images.Make(t.Context(), "file", asPNG(t, hole))
	require.NoError(t, err)
	assert.Equal(t, "image/png", made.Image.Type)
	assert.Equal(t, "image/png", made.Thumb.Type)
	assert.Equal(t, color.NRGBA{}, decoded(t, made.Image).At(300, 300))
	assert.Equal(t, []int{480, 480}, []int{made.Thumb.Width, made.Thumb.Height})
}

func TestMake_keepsTheFirstFrame(t *testing.T) {
	t.Parallel()
	palette := color.Palette{color.Black, color.White}
	black := image.NewPaletted(image.Rect(0, 0, 8, 8), palette)
	white := image.NewPaletted(image.Rect(0, 0, 8, 8), palette)
	for i := range white.Pix {
		white.Pix[i] = 1
	}
	var b bytes.Buffer
	require.NoError(t, gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{white, black}, Delay: []int{1, 1}}))
	made, err := images.Make(t.Context(), "file", b.Bytes())
	require.NoError(t, err)
	assert.Greater(t, redness(decoded(t, made.Image), 4, 4), uint32(0xf000))
}
