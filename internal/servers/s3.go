package servers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// S3 is a private versitygw, which speaks S3 and keeps its objects in a folder. It has one bucket.
type S3 struct{ *Server }

const (
	s3Key    = "key"
	s3Secret = "a/secret+of=tests"
	s3Bucket = "images"
)

// StartS3 starts the program of versitygw, which scripts/install-versitygw.sh installs, in dir.
func StartS3(ctx context.Context, path, dir string) (*S3, error) {
	s, err := start(ctx, program{
		name:  "versitygw",
		ports: 1,
		prepare: func(_ context.Context, s *Server) error {
			for _, name := range []string{filepath.Join("data", s3Bucket), "metadata"} {
				if err := os.MkdirAll(s.file(name), 0o700); err != nil {
					return err
				}
			}
			return nil
		},
		command: func(s *Server) (*exec.Cmd, error) {
			cmd := exec.Command(path, "--port", s.Addr(), "posix", "--sidecar", s.file("metadata"), s.file("data"))
			cmd.Env = append(environment(), "ROOT_ACCESS_KEY="+s3Key, "ROOT_SECRET_KEY="+s3Secret)
			return cmd, nil
		},
		probe: probeS3,
	}, dir)
	if err != nil {
		return nil, err
	}
	return &S3{s}, nil
}

// Address returns the place of images in the bucket, in the form of --images.
func (s *S3) Address() string {
	secret := strings.NewReplacer("/", "%2F", "+", "%2B").Replace(s3Secret)
	return fmt.Sprintf("s3://%s:%s@%s/%s/forum?tls=false", s3Key, secret, s.Addr(), s3Bucket)
}

// probeS3 returns nil once the server refuses a request without a signature.
func probeS3(ctx context.Context, s *Server) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+"/"+s3Bucket, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		return fmt.Errorf("versitygw answers %s", answer.Status)
	}
	return nil
}
