package images

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shows returns a picture as Chromium shows it: its size, and four bytes for each pixel; nothing if it shows none.
const shows = `
	window.shows = async (file) => {
		const picture = new Image();
		picture.src = file;
		try { await picture.decode(); } catch { return { Width: 0, Height: 0, Pixels: "" }; }
		const canvas = new OffscreenCanvas(picture.naturalWidth, picture.naturalHeight);
		const to = canvas.getContext("2d", { colorSpace: "srgb" });
		to.drawImage(picture, 0, 0);
		const data = to.getImageData(0, 0, canvas.width, canvas.height).data;
		let text = "";
		for (const b of data) text += String.fromCharCode(b);
		return { Width: canvas.width, Height: canvas.height, Pixels: btoa(text) };
	};`

type shown struct {
	Width, Height int
	Pixels        string
}

func browser(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "make test installs the package chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox) // the sandbox refuses root
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closePage := chromedp.NewContext(ctx)
	t.Cleanup(closePage)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	require.NoError(t, chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](shows)))
	return ctx
}

// halves returns a picture with an orange left half and a green right one. The top left corner is dark.
func halves() *image.NRGBA {
	p := image.NewNRGBA(image.Rect(0, 0, 64, 32))
	for y := range 32 {
		for x := range 64 {
			c := color.NRGBA{200, 80, 60, 255}
			if x >= 32 {
				c = color.NRGBA{60, 180, 90, 255}
			}
			if x < 16 && y < 16 {
				c = color.NRGBA{20, 20, 20, 255}
			}
			p.SetNRGBA(x, y, c)
		}
	}
	return p
}

// profile returns a color profile of RGB: primaries for D50, and an exponent.
func profile(columns [3][3]float64, exponent float64) []byte {
	type tag struct {
		name string
		data []byte
	}
	number := func(b []byte, x float64) []byte { return binary.BigEndian.AppendUint32(b, uint32(int32(x*(1<<16)))) }
	curve := append([]byte("curv\x00\x00\x00\x00\x00\x00\x00\x01"), byte(exponent), byte(exponent*256))
	curve = append(curve, 0, 0)
	xyz := func(column [3]float64) []byte {
		b := []byte("XYZ \x00\x00\x00\x00")
		for _, x := range column {
			b = number(b, x)
		}
		return b
	}
	tags := []tag{{"wtpt", xyz([3]float64{0.9642, 1, 0.8249})}}
	for i, name := range []string{"r", "g", "b"} {
		tags = append(tags, tag{name + "XYZ", xyz(columns[i])}, tag{name + "TRC", curve})
	}
	return pack("mntrRGB XYZ ", func(add func(name string, data []byte)) {
		for _, t := range tags {
			add(t.name, t.data)
		}
	})
}

// grayProfile returns a color profile of gray with an exponent.
func grayProfile(exponent float64) []byte {
	return pack("mntrGRAYXYZ ", func(add func(name string, data []byte)) {
		add("wtpt", binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(
			[]byte("XYZ \x00\x00\x00\x00"), 63190), 65536), 54061))
		add("kTRC", append([]byte("curv\x00\x00\x00\x00\x00\x00\x00\x01"), byte(exponent), byte(exponent*256), 0, 0))
	})
}

func pack(kind string, fill func(add func(name string, data []byte))) []byte {
	var table, data []byte
	count := uint32(0)
	fill(func(string, []byte) { count++ })
	fill(func(name string, b []byte) {
		table = binary.BigEndian.AppendUint32(append(table, name...), uint32(132+12*int(count)+len(data)))
		table = binary.BigEndian.AppendUint32(table, uint32(len(b)))
		data = append(data, b...)
	})
	head := make([]byte, 128)
	binary.BigEndian.PutUint32(head, uint32(132+len(table)+len(data)))
	copy(head[8:], "\x02\x40\x00\x00")
	copy(head[12:], kind)
	copy(head[36:], "acsp")
	for i, x := range []uint32{63190, 65536, 54061} {
		binary.BigEndian.PutUint32(head[68+4*i:], x)
	}
	return append(append(binary.BigEndian.AppendUint32(head, count), table...), data...)
}

var (
	displayP3 = profile([3][3]float64{{0.51512, 0.24120, -0.00105}, {0.29198, 0.69225, 0.04189},
		{0.15710, 0.06657, 0.78407}}, 2.2)
	adobeRGB = profile([3][3]float64{{0.60974, 0.31111, 0.01947}, {0.20528, 0.62567, 0.06087},
		{0.14919, 0.06322, 0.74457}}, 2.19921875)
)

func jpegFile(t *testing.T, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, p, &jpeg.Options{Quality: 98}))
	return b.Bytes()
}

// withSegment returns a JPEG with a segment at its beginning.
func withSegment(file []byte, marker byte, data []byte) []byte {
	head := append([]byte{0xff, 0xd8, 0xff, marker}, byte((len(data)+2)>>8), byte(len(data)+2))
	return append(append(head, data...), file[2:]...)
}

func pngFile(t *testing.T, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, p))
	return b.Bytes()
}

// withChunk returns a PNG with a chunk after its header.
func withChunk(file []byte, kind string, data []byte) []byte {
	const head = 8 + 25
	return append(appendChunk(bytes.Clone(file[:head]), kind, data), file[head:]...)
}

func compressed(data []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// solid returns lossless data of one color for a WebP.
func solid(width, height int, c color.NRGBA) []byte {
	w := &bits{}
	w.put(0x2f, 8)
	w.put(width-1, 14)
	w.put(height-1, 14)
	w.put(1, 1)
	w.put(0, 3+3) // the version; no transforms, color cache and groups
	for _, symbol := range []uint8{c.G, c.R, c.B, c.A, 0} {
		w.put(1, 1) // one symbol
		w.put(0, 1)
		w.put(1, 1) // of 8 bits
		w.put(int(symbol), 8)
	}
	return w.out
}

func tiff(turn byte) []byte {
	return append([]byte("MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00"), turn, 0, 0, 0, 0, 0, 0)
}

// animation returns a WebP whose first frame is smaller than its canvas.
func animation(extra ...any) []byte {
	frame := append(uint24s(4, 3, 15, 7, 100), 0)
	second := append(uint24s(0, 0, 39, 29, 100), 0)
	chunks := append([]any{"VP8X", append([]byte{1<<4 | 1<<1, 0, 0, 0}, uint24s(39, 29)...), "ANIM", make([]byte, 6),
		"ANMF", append(frame, riff("VP8L", solid(16, 8, color.NRGBA{200, 80, 60, 255}))...),
		"ANMF", append(second, riff("VP8L", solid(40, 30, color.NRGBA{0, 0, 255, 255}))...)}, extra...)
	return webpFile(riff(chunks...))
}

func gifOf(t *testing.T, canvas image.Point, frame image.Rectangle) []byte {
	t.Helper()
	p := image.NewPaletted(frame, color.Palette{color.RGBA{200, 80, 60, 255}, color.RGBA{60, 180, 90, 255}})
	for x := frame.Min.X; x < frame.Min.X+frame.Dx()/2; x++ {
		for y := frame.Min.Y; y < frame.Max.Y; y++ {
			p.SetColorIndex(x, y, 1)
		}
	}
	var b bytes.Buffer
	require.NoError(t, gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{p}, Delay: []int{1},
		Config: image.Config{Width: max(canvas.X, frame.Max.X), Height: max(canvas.Y, frame.Max.Y)}}))
	file := b.Bytes()
	binary.LittleEndian.PutUint16(file[6:], uint16(canvas.X))
	binary.LittleEndian.PutUint16(file[8:], uint16(canvas.Y))
	return file
}

// odd returns files that are odd in what is not pixels, or whose colors are not those of sRGB.
func odd(t *testing.T) map[string][]byte {
	t.Helper()
	plain := halves()
	gray := image.NewGray(plain.Rect)
	for i := range gray.Pix {
		gray.Pix[i] = uint8(4 * (i % 64))
	}
	j, p, g := jpegFile(t, plain), pngFile(t, plain), gifOf(t, image.Pt(40, 30), image.Rect(4, 5, 24, 15))
	changed := func(file []byte, at int, to ...byte) []byte {
		file = bytes.Clone(file)
		if at < 0 {
			at += len(file)
		}
		copy(file[at:], to)
		return file
	}
	icc := func(data []byte) []byte { return append([]byte("ICC_PROFILE\x00\x01\x01"), data...) }
	iccp := func(data []byte) []byte { return append([]byte("p\x00\x00"), compressed(data)...) }
	files := map[string][]byte{
		"JPEG":                           j,
		"JPEG with a trailing archive":   append(bytes.Clone(j), "PK\x03\x04 archive"...),
		"JPEG with a second one":         append(bytes.Clone(j), jpegFile(t, gray)...),
		"JPEG with a comment":            withSegment(j, 0xfe, []byte("a \xff\xd9 comment")),
		"JPEG with broken EXIF":          withSegment(j, 0xe1, []byte("Exif\x00\x00II*\x00\xff\xff\xff\xff")),
		"JPEG with EXIF that is cut":     withSegment(j, 0xe1, append([]byte("Exif\x00\x00"), tiff(6)[:14]...)),
		"JPEG with half a profile":       withSegment(j, 0xe2, icc(displayP3[:200])),
		"JPEG of Display P3":             withSegment(j, 0xe2, icc(displayP3)),
		"JPEG of Adobe RGB":              withSegment(j, 0xe2, icc(adobeRGB)),
		"JPEG of gray":                   withSegment(jpegFile(t, gray), 0xe2, icc(grayProfile(1.75))),
		"PNG":                            p,
		"PNG without its end":            p[:len(p)-12],
		"PNG with trailing bytes":        append(bytes.Clone(p), "trailing"...),
		"PNG with a wrong checksum":      changed(withChunk(p, "tEXt", []byte("a\x00b")), 8+25+8+3, 9),
		"PNG with a wrong zlib checksum": badAdler(p),
		"PNG with a wrong tRNS":          withChunk(p, "tRNS", []byte("x")),
		"PNG with broken EXIF":           withChunk(p, "eXIf", []byte("II*\x00\xff\xff\xff\xff")),
		"PNG with a broken profile":      withChunk(p, "iCCP", []byte("p\x00\x00broken")),
		"PNG of Display P3":              withChunk(p, "iCCP", iccp(displayP3)),
		"PNG of Adobe RGB":               withChunk(p, "iCCP", iccp(adobeRGB)),
		"PNG of gray":                    withChunk(pngFile(t, gray), "iCCP", iccp(grayProfile(1.75))),
		"GIF with a small frame":         g,
		"GIF with a frame over the edge": gifOf(t, image.Pt(10, 10), image.Rect(0, 0, 20, 16)),
		"GIF without its end":            g[:len(g)-1],
		"GIF with trailing bytes":        append(bytes.Clone(g), "trailing"...),
		"GIF with a comment that is cut": append(bytes.Clone(g[:len(g)-1]), 0x21, 0xfe, 200, 'x'),
		"GIF with broken frames":         append(bytes.Clone(g[:len(g)-1]), 0x2c, 1, 1),
		"WebP":                           webpFile(riff("VP8L", solid(20, 10, color.NRGBA{200, 80, 60, 255}))),
		"WebP with trailing bytes": append(
			webpFile(riff("VP8L", solid(20, 10, color.NRGBA{200, 80, 60, 255}))),
			1,
			2,
		),
		"WebP animated":                   animation(),
		"WebP animated, with broken EXIF": animation("EXIF", []byte("broken")),
		"WebP of Display P3": webpFile(riff("VP8X", append([]byte{1 << 5, 0, 0, 0}, uint24s(19, 9)...),
			"ICCP", displayP3, "VP8L", solid(20, 10, color.NRGBA{200, 80, 60, 255}))),
	}
	for turn := range byte(8) {
		files["JPEG turned "+string('1'+rune(turn))] = withSegment(
			j,
			0xe1,
			append([]byte("Exif\x00\x00"), tiff(turn+1)...),
		)
	}
	return files
}

// badAdler returns a PNG whose pixels have a wrong checksum in their compressed form.
func badAdler(file []byte) []byte {
	at := bytes.Index(file, []byte("IDAT"))
	length := int(binary.BigEndian.Uint32(file[at-4:]))
	data := bytes.Clone(file[at+4 : at+4+length])
	data[length-1] ^= 0xff
	return append(appendChunk(bytes.Clone(file[:at-4]), "IDAT", data), file[at+8+length:]...)
}

// What Chromium shows of a file is what is made of it: whatever surrounds the pixels, and whichever colors they mean.
func TestMake_showsWhatBrowsersShow(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	in := func(file []byte) (image.Point, []byte) {
		t.Helper()
		url := "data:image/any;base64," + base64.StdEncoding.EncodeToString(file)
		s, err := chromedp.Run(ctx, chromedp.Evaluate[shown](`shows("`+url+`")`, chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		pixels, err := base64.StdEncoding.DecodeString(s.Pixels)
		require.NoError(t, err)
		return image.Pt(s.Width, s.Height), pixels
	}
	for name, file := range odd(t) {
		wantSize, want := in(file)
		if !assert.NotZero(t, wantSize, "%s: Chromium does not show it", name) {
			continue
		}
		made, err := Make(t.Context(), "file", file)
		if !assert.NoError(t, err, name) {
			continue
		}
		gotSize, got := in(made.Image.Data)
		if !assert.Equal(t, wantSize, gotSize, name) {
			continue
		}
		for i := range want {
			x, y := i/4%wantSize.X, i/4/wantSize.X
			if x%8 < 3 || x%8 > 5 || y%8 < 3 || y%8 > 5 { // a JPEG blurs edges, which are between its blocks
				continue
			}
			if diff := int(want[i]) - int(got[i]); diff < -4 || diff > 4 {
				t.Errorf("%s at (%d,%d): Chromium shows %v of the file, and %v of what was made", name, x, y,
					want[i/4*4:][:4], got[i/4*4:][:4])
				break
			}
		}
	}
}

// A JPEG whose end is missing has all its pixels. Chromium waits for the end before it shows the last of them.
func TestMake_needsNoEnd(t *testing.T) {
	t.Parallel()
	file := jpegFile(t, halves())
	want, err := Make(t.Context(), "file", file)
	require.NoError(t, err)
	got, err := Make(t.Context(), "file", file[:len(file)-2])
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// Whatever metadata says, it is read in bounds.
func FuzzOrientation(f *testing.F) {
	f.Add(tiff(6))
	f.Add([]byte("II*\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, exif []byte) {
		if turn := orientation(exif); turn < 1 || turn > 8 {
			t.Errorf("the orientation is %d", turn)
		}
	})
}

func FuzzProfile(f *testing.F) {
	f.Add(displayP3)
	f.Add(grayProfile(2))
	f.Fuzz(func(_ *testing.T, icc []byte) {
		profileColors(icc).convert(image.NewRGBA(image.Rect(0, 0, 2, 2)))
	})
}

// Headers of any file are read in bounds, and what they promise holds for the decoder.
func FuzzHeader(f *testing.F) {
	plain := halves()
	for _, file := range [][]byte{animation(), webpFile(withAlpha(8, 8, false)), gifFile(8, 8, false),
		jpegOf{3, 0x22, true, 3, 0}.file(16, 16, false),
		pngOf{depth: 16, color: pngRGBA, interlaced: true}.file(9, 9, false)} {
		f.Add(file)
	}
	var b bytes.Buffer
	_ = png.Encode(&b, plain) // a buffer returns no error
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := readHeader(file)
		if err != nil || h.canvas.X*h.canvas.Y > 1<<16 {
			return
		}
		_, _ = h.decode(t.Context())
	})
}
