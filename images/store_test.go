package images_test

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/images"
)

// keeps checks what every Store does.
func keeps(t *testing.T, s images.Store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.Check(ctx))
	_, _, err := s.Open(ctx, "abcdef", 0)
	require.ErrorIs(t, err, images.ErrMissing)
	require.NoError(t, s.Delete(ctx, "abcdef"), "nothing can be deleted")
	for _, text := range []string{"one", strings.Repeat("two", 100_000)} {
		require.NoError(t, s.Put(ctx, "abcdef", "image/png", []byte(text)))
		body, size, err := s.Open(ctx, "abcdef", 0)
		require.NoError(t, err)
		read, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		assert.Equal(t, text, string(read))
		assert.EqualValues(t, len(text), size)

		body, size, err = s.Open(ctx, "abcdef", 2)
		require.NoError(t, err)
		read, err = io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		assert.Equal(t, text[2:], string(read))
		assert.EqualValues(t, len(text), size, "of all of it")
	}
	require.NoError(t, s.Delete(ctx, "abcdef"))
	_, _, err = s.Open(ctx, "abcdef", 0)
	require.ErrorIs(t, err, images.ErrMissing)
	for _, name := range []string{"", "a", "../passwd", `a\b`, "a/b/c"} {
		require.Error(t, s.Put(ctx, name, "image/png", nil), "%q", name)
	}
}

func TestFolder_keepsObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := images.Open(dir)
	require.NoError(t, err)
	keeps(t, s)
}

// A folder that is missing is an error: a path with a mistake, or a disk that is not mounted.
func TestFolder_mustExist(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	s, err := images.Open(dir)
	require.NoError(t, err)
	require.ErrorIs(t, s.Check(t.Context()), fs.ErrNotExist)
	assert.NoDirExists(t, dir)
}

// filesIn returns the files below a folder.
func filesIn(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	return files
}

func TestOpen_refusesOtherAddressesAndHidesThem(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "http://key:hidden@host/bucket", "s3://host/bucket", "s3://key:hidden@host", "s3://key@host/bucket",
		"s3://key:hidden@host/bucket?tls=maybe", "s3://key:hidden@host/bucket?port=1", "s3://key:hid%zzden@host/bucket",
		"s3://key:hidden@host/bucket#x",
	} {
		_, err := images.Open(address)
		require.ErrorContains(t, err, images.Form, "%q", address)
		assert.NotContains(t, err.Error(), "hid", "%q", address)
	}
	for _, address := range []string{"s3://key:se%2Fcret@host:9000/bucket/a/b?region=eu-1&tls=false", "folder"} {
		_, err := images.Open(address)
		require.NoError(t, err, "%q", address)
	}
}

// inside makes a child of this test mount its own small disk.
const inside = "LIKEWISE_TEST_DISK"

// A full disk fails with its own error, leaves no part of an object, and keeps what there was.
func TestFolder_survivesAFullDisk(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(inside)
	if dir == "" {
		// In a namespace of its own, the test needs no rights to mount, and leaves nothing behind.
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), inside+"="+t.TempDir())
		child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			own := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
			child.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			child.SysProcAttr.UidMappings, child.SysProcAttr.GidMappings = own(os.Getuid()), own(os.Getgid())
		}
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
	s, err := images.Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), "abcdef", "image/png", []byte("kept")))
	err = s.Put(t.Context(), "abcdeg", "image/png", make([]byte, 1<<20))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorIs(t, s.Put(t.Context(), "abcdef", "image/png", make([]byte, 1<<20)), syscall.ENOSPC)
	assert.Equal(t, []string{filepath.Join(dir, "ab", "abcdef")}, filesIn(t, dir))
	_, size, err := s.Open(t.Context(), "abcdef", 0)
	require.NoError(t, err)
	assert.EqualValues(t, 4, size)
	require.NoError(t, s.Put(t.Context(), "abcdeg", "image/png", []byte("fits")))
}
