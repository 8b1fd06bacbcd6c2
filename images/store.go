package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Store keeps objects by name. Its methods are safe for concurrent use, and errors mean that the storage failed, except
// for ErrMissing.
type Store interface {
	// Put stores an object, all of it or nothing, and replaces one of this name.
	Put(ctx context.Context, name, kind string, data []byte) error
	// Open returns an object from a byte on, and the size of all of it. ctx bounds the opening, and not the reading.
	// ErrMissing: there is none of this name.
	Open(ctx context.Context, name string, from int64) (io.ReadCloser, int64, error)
	// Delete deletes an object. If there is none of this name, Delete changes nothing.
	Delete(ctx context.Context, name string) error
	// Check returns an error if objects cannot be kept here, such as for wrong credentials. A server that cannot be
	// reached now is accepted: it may be back soon, and all but images works without it.
	Check(ctx context.Context) error
}

// ErrMissing means that the storage answers, and has no such object.
var ErrMissing = errors.New("there is no such object")

// ThumbName returns the name of the object with the thumbnail of an image.
func ThumbName(name string) string { return name + ".thumb" }

// Form is the form of the address that Open takes.
const Form = "/folder, or s3://KEY:SECRET@HOST[:PORT]/BUCKET[/PREFIX][?region=REGION&tls=false]"

var errForm = errors.New("is not of the form " + Form)

// Open returns the store at an address: a folder, or a bucket of a server that speaks S3. It connects to nothing. Its
// errors do not contain the address, which holds a secret.
func Open(address string) (Store, error) {
	scheme, _, ok := strings.Cut(address, "://")
	switch {
	case !ok && address != "":
		return openFolder(address)
	case scheme != "s3":
		return nil, errForm
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errForm
	}
	bucket, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	secret, _ := u.User.Password()
	query := u.Query()
	tls := query.Get("tls")
	for name, values := range query {
		if name != "region" && name != "tls" || len(values) > 1 {
			return nil, errForm
		}
	}
	if u.Host == "" || bucket == "" || u.User.Username() == "" || secret == "" || u.Fragment != "" ||
		tls != "" && tls != "true" && tls != "false" {
		return nil, errForm
	}
	s, err := openS3(u.Host, u.User.Username(), secret, query.Get("region"), tls != "false")
	if err != nil {
		return nil, errForm
	}
	s.bucket, s.prefix = bucket, prefix
	return s, nil
}

// objectPath returns the path of an object, with its first two characters as a folder so that none has too many files.
func objectPath(name string) (string, error) {
	if len(name) < 3 || strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
		return "", fmt.Errorf("%q is not the name of an object", name)
	}
	return name[:2] + "/" + name, nil
}
