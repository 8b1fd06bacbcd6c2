package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

//go:embed assets/* templates/*
var files embed.FS

// assets are the files that pages load. Their names contain a hash, so that browsers may keep them for ever.
type assets struct {
	names  map[string]string // the path by the file's name
	bodies map[string][]byte // by path
}

const assetPath = "/assets/"

func newAssets() (*assets, error) {
	a := &assets{map[string]string{}, map[string][]byte{}}
	small := minify.New()
	small.AddFunc(".css", css.Minify)
	small.AddFunc(".js", js.Minify)
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("list the assets: %w", err)
	}
	for _, e := range entries {
		body, err := fs.ReadFile(files, "assets/"+e.Name())
		if err != nil {
			return nil, fmt.Errorf("read an asset: %w", err)
		}
		extension := path.Ext(e.Name())
		if extension != ".svg" {
			if body, err = small.Bytes(extension, body); err != nil {
				return nil, fmt.Errorf("minify %s: %w", e.Name(), err)
			}
		}
		sum := sha256.Sum256(body)
		hashed := assetPath + strings.TrimSuffix(e.Name(), extension) + "-" +
			base64.RawURLEncoding.EncodeToString(sum[:9]) + extension
		a.names[e.Name()], a.bodies[hashed] = hashed, body
	}
	return a, nil
}

// url returns the path of a file. Templates are executed in tests, so it fails only there.
func (a *assets) url(name string) (string, error) {
	if p, ok := a.names[name]; ok {
		return p, nil
	}
	return "", fmt.Errorf("asset %q not found", name)
}

func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := a.bodies[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, path.Base(r.URL.Path), time.Time{}, bytes.NewReader(body))
}
