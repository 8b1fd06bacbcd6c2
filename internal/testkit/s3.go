package testkit

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"likewise/internal/servers"
)

// S3 starts a private server that speaks S3, until the test ends. The first call on a machine builds its program.
func S3(t *testing.T) *servers.S3 {
	t.Helper()
	_, here, _, _ := runtime.Caller(0) //nolint:dogsled // that is its signature
	script := filepath.Join(filepath.Dir(here), "..", "..", "scripts", "install-versitygw.sh")
	install := exec.CommandContext(t.Context(), script)
	install.Stderr = t.Output()
	path, err := install.Output()
	if err != nil {
		t.Fatalf("install versitygw: %v", err)
	}
	s, err := servers.StartS3(t.Context(), strings.TrimSpace(string(path)), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}
