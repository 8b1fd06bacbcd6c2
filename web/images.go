package web

import (
	"net/http"
	"time"
)

type image struct {
	ID           string    `json:"id"`
	URL          string    `json:"url"`
	ThumbnailURL string    `json:"thumbnail_url"`
	CreatedAt    time.Time `json:"created_at"`
}

type imagesPage struct {
	view

	Images  []image
	Next    string
	Problem *problem
}

func (v *visit) images() error { return v.showImages(nil) }

func (v *visit) showImages(failed *problem) error {
	var page list[image]
	if err := v.load(v.fetch(query("/v1/me/images", "limit", "20", "cursor", v.cursor()), &page)); err != nil {
		return formOr(failed, err)
	}
	p := &imagesPage{Images: page.Items, Next: v.next(page.NextCursor), Problem: failed}
	p.Title = "Your images"
	status := http.StatusOK
	if failed != nil {
		status = failed.Status
	}
	v.render(status, "images", p)
	return nil
}

// maxUpload is the most bytes of an upload: the API's limit of an image, and the form around it.
const maxUpload = 11 << 20

// upload passes the form on to the API as it is.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload)
	v := s.visit(w, r)
	if v.token == "" {
		v.fail(errSignIn)
		return
	}
	err := v.sendBody("/v1/images", r.Header.Get("Content-Type"), r.Body)
	switch {
	case err == nil:
		_ = v.redirect("/images")
	case expired(err):
		v.fail(err)
	default:
		if err := v.showImages(problemOf(err)); err != nil {
			v.fail(err)
		}
	}
}

func (v *visit) deleteImage() error {
	if v.r.FormValue("sure") == "" {
		return v.ask("Delete this picture? Texts that show it will show nothing.", "Delete the picture", "/images")
	}
	if err := v.send(http.MethodDelete, at("images", v.r.PathValue("name")), nil, nil); err != nil {
		return err
	}
	return v.redirect("/images")
}
