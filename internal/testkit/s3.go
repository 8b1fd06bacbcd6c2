package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"likewise/internal/servers"
)

// S3 starts a private server that speaks S3, until the test ends. The first call on a machine builds its program.
func S3(t *testing.T) *servers.S3 {
	t.Helper()
	install := exec.CommandContext(t.Context(), filepath.Join(root(t), "scripts", "install-versitygw.sh"))
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

// root returns the folder of the module. Tests run in the folder of their package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no folder above has a go.mod")
	return ""
}
