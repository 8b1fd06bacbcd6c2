package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// finishOnto runs `likewise args` with its standard output redirected.
func finishOnto(t *testing.T, redirection string, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `exec "$0" "$@" ` + redirection, testBinary()}, args...)...)
	p := startCommand(t, env, cmd)
	status := p.await()
	return result{status, p.stdout.String(), p.stderr.String()}
}

// passwordFile returns the path of a file with a password.
func passwordFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("a password of mine\n"), 0o600))
	return path
}

// Every command that prints something fails if it cannot.
func TestOutput_fullFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("worker")
	s.awaitOpen()
	s.succeed("user", "create", "ada", "ada@example.org")
	s.succeed("user", "create", "bob", "bob@example.org")
	s.exec("UPDATE users SET banned_until='9999-12-31', ban_reason='Spam.' WHERE username='bob'")
	silent := []string{"api", "web", "worker", "cron serve", "healthcheck"}
	lines := map[string]string{
		"cool":                 "cool post:1",
		"cron run":             "cron run purge",
		"migrate up":           "migrate up",
		"migrate status":       "migrate status",
		"migrate restored":     "migrate restored",
		"import stackexchange": "import stackexchange stackexchange/testdata/quantumcomputing.stackexchange",
		"user create":          "user create eve eve@example.org",
		"user promote":         "user promote ada moderator",
		"user password":        "user password ada",
		"user delete":          "user delete bob@example.org --reason=Asked.",
		"user token":           "user token ada",
		"verify":               "verify",
		"likes gated":          "likes gated",
		"likes direct":         "likes direct",
	}
	commands, _ := commandLine(t)
	for _, leaf := range leaves(commands) {
		name := leaf.FullPath()
		name = strings.TrimPrefix(name, "likewise ")
		if _, ok := lines[name]; !ok {
			assert.Contains(t, silent, name, "a command that is not tried here")
		}
	}
	lines["--help"], lines["--version"] = "--help", "--version"
	order := []string{
		"--help",
		"--version",
		"migrate up",
		"migrate status",
		"user create",
		"user promote",
		"user password",
		"user delete",
		"user token",
		"cron run",
		"import stackexchange",
		"cool",
		"verify",
		"likes gated",
		"likes direct",
		"migrate restored",
	}
	require.Len(t, order, len(lines))
	for _, name := range order {
		full := ">/dev/full"
		if name == "user password" {
			full = "<" + passwordFile(t) + " " + full
		}
		r := finishOnto(t, full, s.env, strings.Fields(lines[name])...)
		assert.Equal(t, 1, r.status, name)
		assert.Contains(t, r.stderr, "no space left on device", name)
	}
}

// A secret whose only copy would be lost is not made.
func TestOutput_nowhereMakesNoSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, redirection := range []string{">&-", ">/dev/null"} {
		for _, args := range []string{"user create eve eve@example.org", "user token --count=2"} {
			r := finishOnto(t, redirection, s.env, strings.Fields(args)...)
			assert.Equal(t, 1, r.status, args)
			assert.Contains(t, r.stderr, "standard output is closed or /dev/null", args)
		}
	}
	assert.Zero(t, s.count("SELECT COUNT(*) FROM users"))
	r := finishOnto(t, ">/dev/null <"+passwordFile(t), s.env, "user", "create", "eve", "eve@example.org",
		"--password-stdin")
	assert.Zero(t, r.status, r.stderr)
}

func TestReadPassword_isTextWithoutItsMark(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a secret of mine\n":             "a secret of mine",
		"\ufeffa secret of mine\r\nmore": "a secret of mine",
		"no line end":                    "no line end",
	} {
		got, err := readPassword(strings.NewReader(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, got)
	}
	for _, in := range []string{"", "\xff\xfea\x00\n\x00", "\xfe\xff\x00a\x00\n", "a\x00b\n", "caf\xe9\n"} {
		_, err := readPassword(strings.NewReader(in))
		assert.Error(t, err, "%q", in)
	}
}
