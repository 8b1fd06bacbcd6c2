package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// s3 is a Store in a bucket of a server that speaks S3.
type s3 struct {
	client         *minio.Client
	bucket, prefix string
}

// Bounds on the work of one request. A request that takes longer fails.
const (
	s3Timeout     = 8 * time.Second // of a whole Put or Delete, and of the header of an answer
	s3ReadTimeout = 20 * time.Second
	s3SlowestRead = 16 << 10 // bytes a second, after s3ReadTimeout: the reader of the object may be slow
	s3Retries     = 2
)

func openS3(host, key, secret, region string, tls bool) (*s3, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	transport.ResponseHeaderTimeout = s3Timeout
	transport.MaxIdleConnsPerHost = 16
	client, err := minio.New(host, &minio.Options{
		Creds: credentials.NewStaticV4(key, secret, ""), Secure: tls, Region: region, Transport: transport,
		MaxRetries: s3Retries, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, err
	}
	return &s3{client: client}, nil
}

func (s *s3) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s3Timeout)
	defer cancel()
	found, err := s.client.BucketExists(ctx, s.bucket)
	switch {
	case err == nil && !found:
		return fmt.Errorf("there is no bucket %q", s.bucket)
	case minio.ToErrorResponse(err).StatusCode/100 == 4:
		return err
	}
	return nil
}

func (s *s3) Put(ctx context.Context, name, kind string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s3Timeout)
	defer cancel()
	key, err := s.key(name)
	if err != nil {
		return err
	}
	_, err = s.client.PutObject(ctx, s.bucket, key, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{ContentType: kind, DisableMultipart: true})
	return err
}

func (s *s3) Open(ctx context.Context, name string, from int64) (io.ReadCloser, int64, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, 0, err
	}
	options := minio.GetObjectOptions{}
	if from > 0 {
		if err := options.SetRange(from, 0); err != nil {
			return nil, 0, err
		}
	}
	reading, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, cancel)
	core := minio.Core{Client: s.client} // unlike the client itself, it sends the request at once
	body, info, _, err := core.GetObject(reading, s.bucket, key, options)
	switch {
	case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
		err = ErrMissing
	case err == nil && !opened():
		err = errors.Join(ctx.Err(), body.Close())
	case err == nil:
		limit := time.AfterFunc(s3ReadTimeout+time.Duration(info.Size)*time.Second/s3SlowestRead, cancel)
		return &s3Body{body, func() { limit.Stop(); cancel() }}, from + info.Size, nil
	}
	cancel()
	return nil, 0, err
}

// s3Body is an object that is being read.
type s3Body struct {
	io.ReadCloser

	cancel func()
}

func (b *s3Body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

func (s *s3) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s3Timeout)
	defer cancel()
	key, err := s.key(name)
	if err != nil {
		return err
	}
	err = s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return err
}

func (s *s3) key(name string) (string, error) {
	object, err := objectPath(name)
	return path.Join(s.prefix, object), err
}
