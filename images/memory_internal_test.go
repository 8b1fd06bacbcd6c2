package images

import (
	"bytes"
	"compress/lzw"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// jpegOf returns a JPEG whose scans ask for all that they can with hardly any bytes.
type jpegOf struct {
	components  int
	luma        byte // samples of the first and the fourth component
	progressive bool
	scans       int
	adobe       byte
}

func (j jpegOf) file(width, height int, _ bool) []byte {
	b := []byte{0xff, jpegSOI}
	add := func(marker byte, data ...byte) {
		b = append(append(b, 0xff, marker, byte((len(data)+2)>>8), byte(len(data)+2)), data...)
	}
	if j.components == 4 {
		add(jpegAdobe, append([]byte("Adobe\x00\x64\x00\x00\x00\x00"), j.adobe)...)
	}
	add(jpegDQT, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	frame := []byte{8, byte(height >> 8), byte(height), byte(width >> 8), byte(width), byte(j.components)}
	for i := range j.components {
		sampling := byte(0x11)
		if i == 0 || i == 3 {
			sampling = j.luma
		}
		frame = append(frame, byte(i+1), sampling, 0)
	}
	sof := byte(jpegSOF0)
	if j.progressive {
		sof = jpegSOF2
	}
	add(sof, frame...)
	if !j.progressive {
		one := append([]byte{1}, make([]byte, 15)...) // one code of one bit: 0
		add(jpegDHT, append(append([]byte{0x00}, one...), 0)...)
		add(jpegDHT, append(append([]byte{0x10}, one...), 0)...)
		scan := []byte{byte(j.components)}
		for i := range j.components {
			scan = append(scan, byte(i+1), 0)
		}
		add(jpegSOS, append(scan, 0, 63, 0)...)
		blocks := (width + 15) / 8 * ((height + 15) / 8) * j.components
		b = append(b, make([]byte, blocks/4+64)...) // two bits for each block
		return append(b, 0xff, jpegEOI)
	}
	two := append([]byte{1, 1}, make([]byte, 14)...)               // the codes 0 and 10
	add(jpegDHT, append(append([]byte{0x10}, two...), 0xe0, 0)...) // a run of up to 32,767 empty blocks
	runs := (width+7)/8*((height+7)/8)/32767 + 1
	var run []byte
	for bit := 0; bit < (15*runs+7)/8*8; bit += 8 {
		var next byte
		for i := bit; i < bit+8; i++ { // each run is 0 and 14 ones; ones fill the last byte
			next <<= 1
			if i%15 > 0 || i >= 15*runs {
				next |= 1
			}
		}
		if run = append(run, next); next == 0xff {
			run = append(run, 0)
		}
	}
	for scan := range j.scans {
		add(jpegSOS, 1, byte(1+scan%j.components), 0, 1, 63, 0)
		b = append(b, run...)
	}
	return append(b, 0xff, jpegEOI)
}

// pngOf is a kind of PNG.
type pngOf pngHead

func (p pngOf) file(width, height int, headers bool) []byte {
	head := pngHead(p)
	head.width, head.height = int64(width), int64(height)
	interlaced := byte(0)
	if p.interlaced {
		interlaced = 1
	}
	data := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
	out := appendChunk([]byte(pngMagic), "IHDR", append(data, p.depth, p.color, 0, 0, interlaced))
	if p.transp != nil {
		out = appendChunk(out, "tRNS", p.transp)
	}
	var packed bytes.Buffer
	to, _ := zlib.NewWriterLevel(&packed, zlib.BestSpeed)
	if !headers {
		_, _ = io.CopyN(to, zeros{}, head.size())
	}
	_ = to.Close()
	return appendChunk(appendChunk(out, "IDAT", packed.Bytes()), "IEND", nil)
}

// zeros is an endless file of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func gifFile(width, height int, headers bool) []byte {
	size := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(width)), uint16(height))
	b := append(append([]byte("GIF89a"), size...), 0x80, 0, 0, 0, 0, 0, 255, 255, 255)
	b = append(append(b, 0x2c, 0, 0, 0, 0), append(size, 0, 2)...)
	var packed bytes.Buffer
	to := lzw.NewWriter(&packed, lzw.LSB, 2)
	if !headers {
		_, _ = io.CopyN(to, zeros{}, int64(width)*int64(height))
	}
	_ = to.Close()
	for packed.Len() > 0 {
		part := packed.Next(255)
		b = append(append(b, byte(len(part))), part...)
	}
	return append(b, 0, 0x3b)
}

// bits writes numbers, the least significant bit first.
type bits struct {
	out   []byte
	count int
}

func (w *bits) put(value, n int) {
	for i := range n {
		if w.count%8 == 0 {
			w.out = append(w.out, 0)
		}
		w.out[w.count/8] |= byte(value>>i&1) << (w.count % 8)
		w.count++
	}
}

// code writes a code of n bits, which are read from the most significant one on.
func (w *bits) code(value, n int) {
	for i := n - 1; i >= 0; i-- {
		w.put(value>>i, 1)
	}
}

// tree writes a Huffman tree in which the first 1<<length symbols have codes of that length.
func (w *bits) tree(length int) {
	order := []int{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11}
	w.put(0, 1)
	w.put(len(order)-4, 4)
	for _, l := range order {
		if l == length {
			w.put(1, 3)
		} else {
			w.put(0, 3)
		}
	}
	w.put(1, 1) // the number of symbols follows
	w.put(5, 3) // in 12 bits
	w.put(1<<length-2, 12)
}

// losslessData returns pixels for a VP8L with as many Huffman trees as can be, each as large as it can be. head adds
// the header with the size.
func losslessData(width, height int, head, headers bool) []byte {
	w := &bits{}
	if head {
		w.put(0x2f, 8)
		w.put(width-1, 14)
		w.put(height-1, 14)
		w.put(1, 1)
		w.put(0, 3)
	}
	if headers {
		return w.out
	}
	w.put(0, 1)  // no transforms
	w.put(1, 1)  // a color cache
	w.put(11, 4) // of 2,048 colors
	w.put(1, 1)  // several groups
	w.put(0, 3)  // in tiles of 4×4
	w.put(0, 1)  // their numbers have no color cache
	for _, length := range []int{8, 8} {
		w.tree(length)
	}
	for range 3 { // blue, alpha and distances are always 0
		w.put(1, 1)
		w.put(0, 1)
		w.put(0, 1)
		w.put(0, 1)
	}
	groups := 0
	for tile := range ((width + 3) / 4) * ((height + 3) / 4) {
		group := tile % 2600
		groups = max(groups, group+1)
		w.code(group&255, 8)
		w.code(group>>8, 8)
	}
	for range groups {
		for _, length := range []int{11, 8, 8, 8, 5} {
			w.tree(length)
		}
	}
	w.code(0, 11)
	for range 3 {
		w.code(0, 8)
	}
	for left := width*height - 1; left > 0; {
		n := min(left, 4096)
		if n < 3073 { // one more pixel
			w.code(0, 11)
			for range 3 {
				w.code(0, 8)
			}
			left--
			continue
		}
		w.code(256+23, 11) // a copy of 3,073 to 4,096 pixels
		w.put(n-3073, 10)
		w.code(1, 5) // of the pixel before
		left -= n
	}
	return w.out
}

func riff(chunks ...any) []byte {
	var body []byte
	for i := 0; i < len(chunks); i += 2 {
		data := chunks[i+1].([]byte)
		body = binary.LittleEndian.AppendUint32(append(body, chunks[i].(string)...), uint32(len(data)))
		body = append(append(body, data...), make([]byte, len(data)&1)...)
	}
	return body
}

func webpFile(body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(body))),
		append([]byte("WEBP"), body...)...)
}

func uint24s(n ...int) (b []byte) {
	for _, n := range n {
		b = append(b, byte(n), byte(n>>8), byte(n>>16))
	}
	return b
}

// lossyData returns a VP8 key frame. Any bits are pixels.
func lossyData(width, height int, headers bool) []byte {
	const first = 1 << 18
	b := uint24s(first<<5 | 1<<4)
	b = append(b, 0x9d, 0x01, 0x2a, byte(width), byte(width>>8), byte(height), byte(height>>8))
	if headers {
		return b
	}
	return append(b, make([]byte, first+4<<20)...)
}

func withAlpha(width, height int, headers bool) []byte {
	return riff("ALPH", append([]byte{1}, losslessData(width, height, false, headers)...),
		"VP8 ", lossyData(width, height, headers))
}

// kind returns a file of a size, or its headers alone.
type kind func(width, height int, headers bool) []byte

// kinds are the kinds of files that ask for much.
var kinds = map[string]kind{
	"JPEG":                   jpegOf{3, 0x11, false, 1, 0}.file,
	"JPEG of CMYK":           jpegOf{4, 0x11, false, 1, 0}.file,
	"JPEG progressive":       jpegOf{3, 0x11, true, 3, 0}.file,
	"JPEG progressive 4:2:0": jpegOf{3, 0x22, true, 3, 0}.file,
	"JPEG progressive YCCK":  jpegOf{4, 0x11, true, 4, 2}.file,
	"JPEG progressive, YCCK 4:2:0, many scans": jpegOf{4, 0x22, true, 60, 2}.file,
	"PNG":                        pngOf{depth: 8, color: pngRGBA}.file,
	"PNG of gray with a hole":    pngOf{depth: 16, color: pngGray, transp: []byte{0, 1}}.file,
	"PNG of 16 bits":             pngOf{depth: 16, color: pngRGBA}.file,
	"PNG of 16 bits, interlaced": pngOf{depth: 16, color: pngRGBA, interlaced: true}.file,
	"PNG of palette, interlaced": pngOf{depth: 8, color: pngGray, interlaced: true}.file,
	"GIF":                        gifFile,
	"WebP lossy": func(w, h int, headers bool) []byte {
		return webpFile(riff("VP8 ", lossyData(w, h, headers)))
	},
	"WebP lossless": func(w, h int, headers bool) []byte {
		return webpFile(riff("VP8L", losslessData(w, h, true, headers)))
	},
	"WebP lossy with alpha": func(w, h int, headers bool) []byte {
		head := riff("VP8X", append([]byte{1 << 4, 0, 0, 0}, uint24s(w-1, h-1)...))
		return webpFile(append(head, withAlpha(w, h, headers)...))
	},
	"WebP animated with alpha": func(w, h int, headers bool) []byte {
		return webpFile(
			riff("VP8X", append([]byte{1<<4 | 1<<1, 0, 0, 0}, uint24s(w-1, h-1)...), "ANIM", make([]byte, 6),
				"ANMF", append(append(uint24s(0, 0, w-1, h-1, 100), 0), withAlpha(w, h, headers)...)),
		)
	},
}

// readHeader returns what Make knows of a file before it decodes.
func readHeader(file []byte) (h *header, err error) {
	for _, f := range formats {
		if f.magic(file) {
			h, err = f.read(file)
		}
	}
	if err == nil {
		_, err = h.check(int64(len(file)))
	}
	return h, err
}

// largest returns the largest file of a kind that is accepted, of some shape.
func largest(t *testing.T, file kind, wide int) []byte {
	t.Helper()
	of := func(side int, headers bool) []byte { return file(side*wide, max(1, side/wide), headers) }
	side := sort.Search(6400, func(side int) bool {
		_, err := readHeader(of(side+1, true))
		return err != nil
	})
	for {
		require.Positive(t, side)
		made := of(side, false)
		if _, err := readHeader(made); err == nil {
			return made
		}
		side -= 1 + side/100 // the file itself counts, too
	}
}

const (
	childFile = "LIKEWISE_TEST_IMAGE" // of a process that makes one image
	base      = 64 << 20              // bytes of a process that makes none
	code      = 32 << 20              // bytes of a program
)

// The largest file that is accepted, of every kind, takes no more memory than is promised, in a process that has the
// memory of compose.yaml and collects its garbage by the same rule.
func TestMake_holdsTheMemoryThatItCounts(t *testing.T) {
	if path := os.Getenv(childFile); path != "" {
		makeOne(t, path)
		return
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "images.test") // without the race detector, which takes memory of its own
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, kind := range kinds {
		shapes := []int{1}
		if strings.HasPrefix(name, "PNG") {
			shapes = append(shapes, 1000) // whose rows are as large as the picture
		}
		for _, wide := range shapes {
			path := filepath.Join(t.TempDir(), "file")
			file := largest(t, kind, wide)
			require.NoError(t, os.WriteFile(path, file, 0o600))
			child := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
			child.Env = append(os.Environ(), childFile+"="+path, fmt.Sprintf("GOMEMLIMIT=%d", MaxMemory+base))
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			peak := number(t, out, `peak (\d+)`)
			h, err := readHeader(file)
			require.NoError(t, err)
			memory, err := h.check(int64(len(file)))
			require.NoError(t, err)
			t.Logf("%s of %v, %d bytes: counted %d MiB, peak of the process %d MiB, %d ms of processor", name, h.canvas,
				len(file), memory>>20, peak>>20, number(t, out, `processor (\d+)`))
			assert.Less(t, peak, int64(MaxMemory+base+code), name)
		}
	}
}

func number(t *testing.T, out []byte, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindSubmatch(out)
	require.NotNil(t, found, "%s", out)
	n, err := strconv.ParseInt(string(found[1]), 10, 64)
	require.NoError(t, err)
	return n
}

// makeOne makes an image of a file and prints what it took.
func makeOne(t *testing.T, path string) {
	t.Helper()
	limit := syscall.Rlimit{Cur: composeMemory(t), Max: composeMemory(t)}
	const rlimitData = 2
	require.NoError(t, syscall.Setrlimit(rlimitData, &limit))
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = Make(t.Context(), "file", file)
	require.NoError(t, err)
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	fmt.Fprintf(os.Stdout, "peak %d\n", number(t, status, `VmHWM:\s+(\d+) kB`)<<10)
	fmt.Fprintf(os.Stdout, "processor %d\n", time.Duration(usage.Utime.Nano()+usage.Stime.Nano()).Milliseconds())
}

// composeMemory returns the bytes that compose.yaml grants a process.
func composeMemory(t *testing.T) uint64 {
	t.Helper()
	file, err := os.ReadFile("../compose.yaml")
	require.NoError(t, err)
	return uint64(number(t, file[strings.Index(string(file), "x-likewise:"):][:2000:2000], `mem_limit: (\d+)g`)) << 30
}

// Files that ask for more than is promised are refused before they are decoded, however few bytes they have.
func TestMake_refusesWhatWouldTakeTooMuch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file []byte
		code models.FieldCode
	}{
		"a JPEG of 1,006 MiB": {jpegOf{4, 0x11, true, 4, 2}.file(6320, 6320, true), models.FieldTooLarge},
		"a PNG of 919 MB": {
			pngOf{depth: 16, color: pngRGBA, interlaced: true}.file(39_999_999, 1, true), models.FieldTooLarge,
		},
		"a JPEG of 634 MB": {jpegOf{3, 0x11, true, 3, 0}.file(6320, 6320, true), models.FieldTooLarge},
		"a thousand scans": {jpegOf{1, 0x11, true, 1000, 0}.file(6320, 6320, true), models.FieldBadFormat},
	} {
		_, err := Make(t.Context(), "file", test.file)
		e, ok := errors.AsType[*models.Error](err)
		require.True(t, ok, "%s: %v", name, err)
		require.Len(t, e.Fields, 1)
		assert.Equal(t, test.code, e.Fields[0].Code, name)
	}
}

// A file stops being decoded when its context ends.
func TestMake_endsWithItsContext(t *testing.T) {
	t.Parallel()
	file := jpegOf{1, 0x11, true, 25, 0}.file(6300, 6300, false)
	ctx, cancel := context.WithCancel(t.Context())
	h, err := readHeader(file)
	require.NoError(t, err)
	reads := 0
	pixels := h.pixels
	h.pixels = nil
	_, err = pixels(func(parts ...[]byte) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			if reads++; reads == 3 {
				cancel()
			}
			return (&chunkedReader{ctx, parts}).Read(p)
		})
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 3, reads, "it reads in small steps, and no more after the end")
	_, err = Make(ctx, "file", file)
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
