package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// folder is a Store in a local folder. An object is written to a file of another name first, so that a full disk or a
// crash leaves no part of one.
type folder struct{ path string }

func openFolder(path string) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return &folder{path}, nil
}

func (f *folder) Check(context.Context) error {
	// A folder that is missing is not made: the path may have a mistake, or a disk may not be mounted, and all images
	// of the site would be gone.
	probe, err := os.CreateTemp(f.path, newFile)
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// newFile is the pattern of the names of files that are being written. No object has such a name.
const newFile = "new-*"

func (f *folder) Put(_ context.Context, name, _ string, data []byte) (err error) {
	path, err := f.file(name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, newFile)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return fmt.Errorf("write an image: %w", err)
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f *folder) Open(_ context.Context, name string, from int64) (io.ReadCloser, int64, error) {
	path, err := f.file(name)
	if err != nil {
		return nil, 0, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, ErrMissing
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = file.Seek(from, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func (f *folder) Delete(_ context.Context, name string) error {
	path, err := f.file(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folder) file(name string) (string, error) {
	path, err := objectPath(name)
	return filepath.Join(f.path, filepath.FromSlash(path)), err
}
