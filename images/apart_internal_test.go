package images

import (
	"context"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestMain(m *testing.M) {
	ServeApart()
	os.Exit(m.Run())
}

// longJPEG returns a file that takes seconds to decode.
func longJPEG() []byte {
	return jpegOf{components: 1, luma: 0x11, progressive: true, scans: 25}.file(6000, 6000, false)
}

func TestMakeApart_makesTheSame(t *testing.T) {
	t.Parallel()
	var drawing strings.Builder
	p := image.NewGray(image.Rect(0, 0, 700, 500))
	for i := range p.Pix {
		p.Pix[i] = uint8(i / 7)
	}
	require.NoError(t, png.Encode(&drawing, p))
	file := []byte(drawing.String())
	here, err := Make(t.Context(), "file", file)
	require.NoError(t, err)
	apart, err := MakeApart(t.Context(), "file", file)
	require.NoError(t, err)
	assert.Equal(t, here, apart)

	for name, file := range map[string][]byte{
		"not an image": []byte("text"),
		"too large":    pngOf{depth: 8, color: pngRGB}.file(50_000, 50_000, true),
		"damaged":      file[:len(file)/2],
	} {
		_, here := Make(t.Context(), "file", file)
		_, apart := MakeApart(t.Context(), "file", file)
		require.Equal(t, models.CodeInvalid, models.ErrorCode(here), name)
		assert.Equal(t, here, apart, name)
	}
}

// The work ends with its context, and so does the process.
func TestMakeApart_endsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := MakeApart(ctx, "file", longJPEG())
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// All threads of a process that decodes yield to the others, and it knows nothing of the environment.
func TestMakeApart_yields(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args, cmd.Env = []string{apartName}, []string{}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	var out capped
	out.limit = apartOutput
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	_, err = in.Write(jpegOf{components: 1, luma: 0x11, progressive: true, scans: 2}.file(64, 64, false))
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		stats, err := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/*/stat")
		assert.NoError(c, err)
		assert.NotEmpty(c, stats)
		for _, path := range stats {
			stat, err := os.ReadFile(path)
			if assert.NoError(c, err) {
				_, rest, _ := strings.Cut(string(stat), ") ")
				assert.Equal(c, strconv.Itoa(niceness), strings.Fields(rest)[16])
			}
		}
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	assert.NotZero(t, out.b.Len())
}

// A process that MakeApart starts says with its status what went wrong.
func TestServeApart_statuses(t *testing.T) {
	t.Parallel()
	assert.Equal(t, statusDamaged, serveApart(strings.NewReader("text"), io.Discard, io.Discard))
}

// The system ends a process that uses more processor time than a file may take.
func TestLimitProcessor_endsTheProcess(t *testing.T) {
	if os.Getenv("LIKEWISE_TEST_SPIN") != "" {
		require.NoError(t, limitProcessor(time.Second))
		for n := 0; ; n++ {
			_ = n
		}
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "LIKEWISE_TEST_SPIN=1")
	require.Error(t, cmd.Run())
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	assert.True(t, status.Signaled(), "it is killed: %s", cmd.ProcessState)
	// The system counts the time of a limit in ticks, and may be early by some of them.
	assert.Greater(t, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), time.Second/2)
}
