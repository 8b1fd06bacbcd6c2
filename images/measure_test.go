package images_test

import (
	"bytes"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/images"
)

// BenchmarkMake12MP makes an image of a photo of 12 megapixels, which is as noisy as photos are.
func BenchmarkMake12MP(b *testing.B) {
	p := image.NewYCbCr(image.Rect(0, 0, 4000, 3000), image.YCbCrSubsampleRatio420)
	for i := range p.Y {
		p.Y[i] = uint8(i%4000/16) + uint8(rand.N(8))
	}
	for i := range p.Cb {
		p.Cb[i], p.Cr[i] = uint8(i%2000/8), uint8(i/2000/6)
	}
	var file bytes.Buffer
	require.NoError(b, jpeg.Encode(&file, p, &jpeg.Options{Quality: 90}))
	b.SetBytes(int64(file.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := images.Make(b.Context(), "file", file.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}
