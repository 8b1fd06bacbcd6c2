package main

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"likewise/internal/testkit"
)

func TestConsole_writesARequestAsOneLine(t *testing.T) {
	t.Parallel()
	request := func(color bool, level slog.Level, status int, took time.Duration, path string) string {
		var out bytes.Buffer
		log := slog.New(newConsole(&out, slog.LevelInfo, color))
		log.Log(t.Context(), level, "request", "method", "GET", "route", "/v1/posts/:id", "status", status,
			"duration_ms", float64(took.Microseconds())/1000, "request_id", "r-1", "path", path, "error", "a\nb")
		return out.String()
	}
	line := func(status int, took time.Duration, path string) string {
		return request(false, slog.LevelInfo, status, took, path)
	}
	const columns = `^\d\d:\d\d:\d\d GET    /v1/posts/42 {33}`
	assert.Regexp(t, columns+`200  1\.2 ms\n$`, line(200, 1230*time.Microsecond, "/v1/posts/42"))
	assert.Regexp(t, columns+`404   12 ms\n$`, line(404, 12*time.Millisecond, "/v1/posts/42"))
	assert.Regexp(t, columns+`200   2\.5 s\n$`, line(200, 2500*time.Millisecond, "/v1/posts/42"))
	assert.Regexp(t, columns+`500  0\.0 ms request_id=r-1 error=a\?b\n$`,
		request(false, slog.LevelError, 500, 0, "/v1/posts/42"))
	assert.NotContains(t, line(404, 0, "/\x1b[31m\x07\xff\u202e"), "\x1b")
	assert.Less(t, len(line(404, 0, "/"+strings.Repeat("x", 5000))), 400)
	for status, color := range map[int]string{200: "32", 304: "36", 404: "33", 503: "31"} {
		colored := "\x1b[" + color + "m" + strconv.Itoa(status) + "\x1b[0m"
		assert.Contains(t, request(true, slog.LevelInfo, status, 0, "/"), colored)
	}
	var out bytes.Buffer
	slog.New(newConsole(&out, slog.LevelInfo, false)).With("pid", 1).Warn("something else", "shard", 3)
	assert.Regexp(t, `^\d\d:\d\d:\d\d WRN something else pid=1 shard=3\n$`, out.String())
}

// openTerminal returns the two ends of a pseudo-terminal.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { screen.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	return screen, terminal
}

// startOnTerminal starts the product with its standard error, and its standard input, on a terminal.
func startOnTerminal(t *testing.T, env []string, args ...string) (p *process, screen *os.File) {
	t.Helper()
	screen, terminal := openTerminal(t)
	cmd := exec.Command(testBinary(), args...)
	cmd.Stdin = terminal
	p = startCommandWith(t, env, cmd, terminal)
	go func() { // until the terminal is closed
		var buffer [4096]byte
		for {
			n, err := screen.Read(buffer[:])
			_, _ = p.stderr.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	return p, screen
}

func TestTerminal_showsPathsInColor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	serves := regexp.MustCompile(`api serves\S* .*address=\S*?([0-9.]+:\d+)`)
	for noColor, want := range map[string]string{
		"":  "GET    /v1/tags?limit=1 +\x1b\\[32m200\x1b\\[0m",
		"1": `GET    /v1/tags\?limit=1 +200 +[0-9.]+ ms\r?\n`,
	} {
		if noColor == "" {
			want = strings.Replace(want, "?limit", `\?limit`, 1)
		}
		p, _ := startOnTerminal(t, append(s.env, "NO_COLOR="+noColor), "api", "--likes=direct")
		url := "http://" + p.awaitPrint(regexp.MustCompile(serves.String()))
		call(t, url, account{}, "GET", "/v1/tags?limit=1", nil, 200, nil)
		p.awaitPrint(regexp.MustCompile(want))
		p.stop()
		assert.Equal(t, noColor == "", strings.Contains(p.stderr.String(), "\x1b["), "NO_COLOR=%s", noColor)
	}
	// Elsewhere, requests are logged by their routes.
	p, url := s.api("--likes=direct")
	call(t, url, account{}, "GET", "/v1/tags?limit=1", nil, 200, nil)
	p.awaitPrint(regexp.MustCompile(`level=INFO msg=request method=GET route=/v1/tags status=200 `))
	p.stop()
	assert.NotContains(t, p.stderr.String(), "limit=1")
}

func TestTerminal_asksForANewPassword(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.succeed("user", "create", "ada", "ada@example.org")
	const secret = "a password that nobody sees"
	enter := func(second string) *process {
		p, screen := startOnTerminal(t, s.env, "user", "password", "ada")
		p.awaitPrint(regexp.MustCompile(`New password of ada: `))
		awaitEcho(t, screen, false)
		_, err := screen.WriteString(secret + "\n")
		require.NoError(t, err)
		p.awaitPrint(regexp.MustCompile(`The same again: `))
		awaitEcho(t, screen, false)
		_, err = screen.WriteString(second + "\n")
		require.NoError(t, err)
		return p
	}
	p := enter("another one")
	assert.Equal(t, 1, p.await())
	p = enter(secret)
	assert.Zero(t, p.await())
	assert.Contains(t, p.stdout.String(), "ada has a new password.")
	assert.NotContains(t, p.stderr.String()+p.stdout.String(), secret)

	// Ctrl-C while it asks leaves a terminal that shows input.
	p, screen := startOnTerminal(t, s.env, "user", "password", "ada")
	p.awaitPrint(regexp.MustCompile(`New password of ada: `))
	awaitEcho(t, screen, false)
	p.term()
	assert.Equal(t, 1, p.await())
	awaitEcho(t, screen, true)
}

// awaitEcho waits until the terminal shows input, or does not.
func awaitEcho(t *testing.T, screen *os.File, want bool) {
	t.Helper()
	testkit.Eventually(t, patience, func() (bool, string) {
		state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
		require.NoError(t, err)
		return (state.Lflag&unix.ECHO != 0) == want, "the terminal has the other echo"
	})
}
