package handlers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/images"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/media"
	"likewise/models/moderation"
	"likewise/models/privacy"
	"likewise/workers"
)

func imagesIn(t *testing.T, address string) images.Store {
	t.Helper()
	s, err := images.Open(address)
	require.NoError(t, err)
	return s
}

func withImages(s images.Store) func(*handlers.Config) {
	return func(c *handlers.Config) { c.Images = s }
}

// asPNG returns a PNG with one transparent pixel.
func asPNG(t testing.TB, width, height int) []byte {
	t.Helper()
	p := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range p.Pix {
		p.Pix[i] = 0xff
	}
	p.SetNRGBA(0, 0, color.NRGBA{})
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, p))
	return b.Bytes()
}

// imageForm returns a body with a file, and its type.
func imageForm(t testing.TB, field string, file []byte) (string, header) {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile(field, "photo.svg")
	require.NoError(t, err)
	_, err = part.Write(file)
	require.NoError(t, err)
	require.NoError(t, form.Close())
	return b.String(), header{"Content-Type", form.FormDataContentType()}
}

type uploaded struct {
	ID           string `json:"id"`
	URL          string `json:"url"`
	ThumbnailURL string `json:"thumbnail_url"`
	Type         string `json:"type"`
	Width        int    `json:"width"`
	Height       int    `json:"height"`
	Bytes        int64  `json:"bytes"`
}

func (a *api) upload(t testing.TB, as account, file []byte) reply {
	t.Helper()
	body, form := imageForm(t, "file", file)
	return a.send(t, as, "POST", "/v1/images", body, form)
}

func (a *api) uploaded(t testing.TB, as account) uploaded {
	t.Helper()
	r := a.upload(t, as, asPNG(t, 600, 300))
	require.Equal(t, 201, r.Status, "%s", r)
	return read[uploaded](t, r)
}

// addImage stores an image of a user, without the API.
func addImage(t testing.TB, store *db.DB, objects images.Store, user int64) *models.Image {
	t.Helper()
	made, err := images.Make(t.Context(), "file", asPNG(t, 600, 300))
	require.NoError(t, err)
	i := &models.Image{UserID: user, Type: made.Image.Type, Width: made.Image.Width, Height: made.Image.Height,
		Bytes: int64(len(made.Image.Data)), ThumbnailBytes: int64(len(made.Thumb.Data))}
	require.NoError(t, media.New(store).AddImage(t.Context(), i, "file", models.DefaultImageRoom))
	require.NoError(t, objects.Put(t.Context(), i.Name, i.Type, made.Image.Data))
	require.NoError(t, objects.Put(t.Context(), images.ThumbName(i.Name), i.Type, made.Thumb.Data))
	require.NoError(t, media.New(store).ShowImage(t.Context(), i.ID))
	return i
}

func TestImages_areUploadedShownAndDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newAPI(t, modes[0], withImages(imagesIn(t, dir)))
	ada, bob := a.account(t), a.account(t)
	i := a.uploaded(t, ada)
	assert.Equal(t, uploaded{i.ID, "/v1/images/" + i.ID, "/v1/images/" + i.ID + "/thumbnail", "image/png", 600, 300,
		i.Bytes}, i)

	for url, side := range map[string]int{i.URL: 600, i.ThumbnailURL: 480} {
		r := a.must(t, 200, account{}, "GET", url, nil)
		assert.Equal(t, "image/png", r.Header.Get("Content-Type"))
		assert.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
		assert.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
		assert.Equal(t, "public, max-age=3600", r.Header.Get("Cache-Control"))
		assert.Equal(t, "cross-origin", r.Header.Get("Cross-Origin-Resource-Policy"))
		shown, err := png.Decode(bytes.NewReader(r.Body))
		require.NoError(t, err)
		assert.Equal(t, side, shown.Bounds().Dx())
		again := a.must(t, 304, account{}, "GET", url, nil, header{"If-None-Match", r.Header.Get("ETag")})
		assert.Empty(t, again.Body)
		head := a.must(t, 200, account{}, "HEAD", url, nil)
		assert.Equal(t, r.Header.Get("Content-Length"), head.Header.Get("Content-Length"))
	}
	list := read[page[uploaded]](t, a.must(t, 200, ada, "GET", "/v1/me/images", nil))
	assert.Equal(t, []uploaded{i}, list.Items)
	assert.Empty(t, read[page[uploaded]](t, a.must(t, 200, bob, "GET", "/v1/me/images", nil)).Items)

	a.must(t, 403, bob, "DELETE", i.URL, nil)
	a.must(t, 204, ada, "DELETE", i.URL, nil)
	for _, url := range []string{i.URL, i.ThumbnailURL, "/v1/images/1", "/v1/images/" + strings.Repeat("A", 20)} {
		gone := a.must(t, 404, account{}, "GET", url, nil)
		assert.NotContains(t, gone.Header.Get("Cache-Control"), "public")
	}
	a.must(t, 404, ada, "DELETE", i.URL, nil)
	a.sweep(t, imagesIn(t, dir))
	assert.Empty(t, filesIn(t, dir), "the job deletes the objects")
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM images"))
}

// sweep runs the job that deletes orphans until there are none.
func (a *api) sweep(t *testing.T, objects images.Store) {
	t.Helper()
	for {
		n, err := workers.NewSweeper(a.store, objects).Sweep(t.Context(), 100)
		require.NoError(t, err)
		if n == 0 {
			return
		}
	}
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

func TestImages_deletedByModeratorsAreLogged(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	ada, mod := a.account(t), a.moderator(t)
	i := a.uploaded(t, ada)
	a.must(t, 204, mod, "DELETE", i.URL, nil)
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM moderation_log"+
		" WHERE action='image.delete' AND actor_id=? AND before_state LIKE ?", mod.ID, "%"+i.ID+"%"))
}

func TestImages_refuseWhatIsNoUpload(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	ada := a.account(t)
	refused := func(status int, code, field, fieldCode, body string, headers ...header) {
		t.Helper()
		r := a.send(t, ada, "POST", "/v1/images", body, headers...)
		require.Equal(t, status, r.Status, "%s", r)
		p := read[problem](t, r)
		assert.Equal(t, code, p.Code)
		if field != "" {
			require.Len(t, p.Errors, 1)
			assert.Equal(t, field, p.Errors[0].Field)
			assert.Equal(t, fieldCode, p.Errors[0].Code)
		}
	}
	refused(415, "unsupported_media_type", "", "", `{"file":"x"}`)
	refused(415, "unsupported_media_type", "", "", "file", header{"Content-Type", "multipart/form-data"})
	body, form := imageForm(t, "picture", asPNG(t, 2, 2))
	refused(422, "invalid", "picture", "unknown_field", body, form)
	body, form = imageForm(t, "file", nil)
	refused(422, "invalid", "file", "required", body, form)
	refused(400, "malformed", "", "", body[:len(body)-10], form)
	body, form = imageForm(t, "file", []byte("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"))
	refused(422, "invalid", "file", "not_one_of", body, form)
	body, form = imageForm(t, "file", make([]byte, images.MaxBytes+1))
	refused(422, "invalid", "file", "too_large", body, form)
	body, form = imageForm(t, "file", make([]byte, images.MaxBytes+1<<20))
	refused(413, "too_large", "", "", body, form)
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM images"))

	off := newAPI(t, modes[0])
	r := off.upload(t, off.account(t), asPNG(t, 2, 2))
	assert.Equal(t, 403, r.Status)
	assert.Equal(t, "forbidden", read[problem](t, r).Code)
}

// An upload that is refused before it is read ends its connection, so what follows in it is not taken for a request.
func TestImages_refusedUploadsHideNoRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	const (
		read   = 8 << 10 // what the server reads of a body at once
		hidden = "GET /healthz HTTP/1.1\r\nHost: hidden\r\n\r\n"
	)
	fmt.Fprintf(conn, "POST /v1/images HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n"+
		"Content-Length: %d\r\n\r\n%s%s", read+len(hidden), strings.Repeat("x", read), hidden)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(answer), "HTTP/1.1 "), "%s", answer)
	assert.Contains(t, string(answer), "401")
}

func TestImages_haveRoomForSoMuch(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	ada := a.account(t)
	i := a.uploaded(t, ada)
	a.exec(t, "UPDATE images SET bytes=?", models.DefaultImageRoom.User)
	r := a.upload(t, ada, asPNG(t, 2, 2))
	require.Equal(t, 409, r.Status, "%s", r)
	p := read[problem](t, r)
	require.Len(t, p.Errors, 1)
	assert.Equal(t, "no_room", p.Errors[0].Code)
	a.must(t, 204, ada, "DELETE", i.URL, nil)
	a.uploaded(t, ada)
}

// The images of all users have room for so much, too, until their objects are deleted.
func TestImages_ofTheSiteHaveRoomForSoMuch(t *testing.T) {
	t.Parallel()
	objects := imagesIn(t, t.TempDir())
	small := func(c *handlers.Config) { c.Room = models.ImageRoom{User: 1 << 20, Site: 20_000} }
	a := newAPI(t, modes[0], withImages(objects), small)
	ada, bob := a.account(t), a.account(t)
	var all []uploaded
	var r reply
	for len(all) < 100 {
		if r = a.upload(t, ada, asPNG(t, 600, 300)); r.Status != 201 {
			break
		}
		all = append(all, read[uploaded](t, r))
	}
	require.NotEmpty(t, all)
	p := read[problem](t, r)
	require.Equal(t, 409, r.Status, "%s", r)
	require.Len(t, p.Errors, 1)
	assert.Equal(t, "no_room", p.Errors[0].Code)
	assert.Equal(t, 409, a.upload(t, bob, asPNG(t, 600, 300)).Status, "it is the room of all")
	for _, i := range all {
		a.must(t, 204, ada, "DELETE", i.URL, nil)
	}
	assert.Equal(t, 409, a.upload(t, bob, asPNG(t, 600, 300)).Status, "the objects are still there")
	a.sweep(t, objects)
	assert.Zero(t, a.number(t, "SELECT CAST(value AS SIGNED) FROM settings WHERE name='image_bytes'"))
	a.uploaded(t, bob)
}

// A part of an image is what a header Range asks for. Whatever else the header says, all of it is sent.
func TestImages_areSentInParts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	i := a.uploaded(t, a.account(t))
	for _, url := range []string{i.URL, i.ThumbnailURL} {
		whole := a.must(t, 200, account{}, "GET", url, nil)
		assert.Equal(t, "bytes", whole.Header.Get("Accept-Ranges"))
		n, tag := len(whole.Body), whole.Header.Get("ETag")
		for asked, part := range map[string][2]int{
			"bytes=0-0": {0, 1}, "bytes=10-19": {10, 20}, "bytes=10-": {10, n}, "bytes=-5": {n - 5, n},
			"bytes=0-99999999": {0, n},
		} {
			r := a.must(t, 206, account{}, "GET", url, nil, header{"Range", asked}, header{"If-Range", tag})
			assert.Equal(t, whole.Body[part[0]:part[1]], r.Body, asked)
			assert.Equal(t, fmt.Sprintf("bytes %d-%d/%d", part[0], part[1]-1, n), r.Header.Get("Content-Range"), asked)
			assert.Equal(t, tag, r.Header.Get("ETag"))
			assert.Equal(t, whole.Header.Get("Cache-Control"), r.Header.Get("Cache-Control"))
		}
		for _, asked := range []string{"bytes=0-1,3-4", "bytes=x", "bytes=5-3", "bytes=99999999-",
			"lines=1-2", "bytes=-0",
			"bytes=99999999999999999999-", "bytes=-"} {
			r := a.must(t, 200, account{}, "GET", url, nil, header{"Range", asked})
			assert.Equal(t, whole.Body, r.Body, asked)
		}
		r := a.must(t, 200, account{}, "GET", url, nil, header{"Range", "bytes=0-0"}, header{"If-Range", `"other"`})
		assert.Equal(t, whole.Body, r.Body)
		a.must(t, 304, account{}, "GET", url, nil, header{"Range", "bytes=0-0"}, header{"If-None-Match", tag})
	}
}

// A row whose object has another size, as after half a restore, is not sent as if it were whole.
func TestImages_ofAnotherSizeAreNotSent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newAPI(t, modes[0], withImages(imagesIn(t, dir)))
	i := a.uploaded(t, a.account(t))
	for _, file := range filesIn(t, dir) {
		require.NoError(t, os.Truncate(file, 10))
	}
	a.must(t, 503, account{}, "GET", i.URL, nil)
}

// An account that has used up its time of decoding waits, however few images that were. Bytes that are sent count as
// requests.
func TestImages_areChargedByTimeAndBytes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())), limited(t, "", 0.02), behindProxy)
	ada, bob := a.account(t), a.account(t)
	at := func(n int) header { return header{"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", n)} }
	noise := image.NewNRGBA(image.Rect(0, 0, 1000, 1000))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise.Pix {
		noise.Pix[i] = uint8(random.Uint32())
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, noise))
	body, form := imageForm(t, "file", b.Bytes())
	first := a.send(t, ada, "POST", "/v1/images", body, form, at(1))
	require.Equal(t, 201, first.Status, "%s", first)
	second := a.send(t, bob, "POST", "/v1/images", body, form, at(1))
	require.Equal(t, 429, second.Status, "%s", second)
	assert.Contains(t, second.Header.Get("RateLimit-Policy"), `"decoding-by-address"`)
	assert.NotEmpty(t, second.Header.Get("Retry-After"))

	i := read[uploaded](t, first)
	require.Greater(t, i.Bytes, int64(3<<20))
	downloads := 0
	for ; downloads < 20; downloads++ {
		if r := a.send(t, account{}, "GET", i.URL, "", at(3)); r.Status == 429 {
			break
		}
	}
	assert.Less(t, downloads, 5, "each counts as at least a dozen of twenty requests")
}

func TestImages_areShownInTextsAndProfiles(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	ada := a.account(t)
	i := a.uploaded(t, ada)
	shown := func(markdown string) string {
		return read[struct {
			HTML string `json:"content_html"`
		}](t, a.must(t, 200, ada, "POST", "/v1/render", obj{"content": markdown})).HTML
	}
	want := fmt.Sprintf(`<img src="%s" alt="a &#34;b&#34;" width="600" height="300" loading="lazy">`, i.URL)
	for _, address := range []string{i.URL, "https://forum.example" + i.URL} {
		assert.Contains(t, strings.ReplaceAll(shown(`![a "b"](`+address+`)`), "&quot;", "&#34;"), want)
	}
	for _, address := range []string{"https://other.example" + i.URL, i.URL + "x", "/v1/images/1", i.URL + "?x"} {
		assert.NotContains(t, shown("![a]("+address+")"), "<img", "%s", address)
	}

	for _, address := range []string{i.URL, "https://forum.example" + i.URL} {
		me := read[obj](t, a.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": address}))
		assert.Equal(t, i.URL, me["avatar_url"])
	}
	a.must(t, 422, ada, "PATCH", "/v1/me", obj{"avatar_url": "/v1/images/1"})
}

// due makes every image due that the job has not put aside.
func (a *api) due(t *testing.T) {
	t.Helper()
	a.exec(t, "UPDATE images SET due_at=NOW() - INTERVAL 1 SECOND WHERE due_at IS NOT NULL")
}

// Whatever shows an image keeps it, in any version that is kept. What is deleted for good frees it.
func TestImages_areKeptWhileSomethingShowsThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	objects := imagesIn(t, dir)
	a := newAPI(t, modes[0], withImages(objects))
	ada, admin := a.account(t), a.promoted(t, a.account(t), models.RoleAdmin)
	swept := func(i uploaded, gone bool) {
		t.Helper()
		a.due(t)
		a.sweep(t, objects)
		status := 200
		if gone {
			status = 404
		}
		a.must(t, status, admin, "GET", i.URL, nil) // also if it is hidden
	}
	text := func(i uploaded) string { return "See ![this](" + i.URL + ")." }

	unused := a.uploaded(t, ada)
	swept(unused, true)

	i := a.uploaded(t, ada)
	post := read[obj](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "A title", "content": text(i)}))
	path := fmt.Sprintf("/v1/posts/%.0f", post["id"])
	swept(i, false)
	a.must(t, 200, ada, "PATCH", path, obj{"content": "nothing"}, header{"If-Match", "*"})
	swept(i, false) // the first version shows it
	a.must(t, 204, ada, "DELETE", path, nil)
	swept(i, false) // it can be restored
	moderated := strings.Replace(path, "/v1/", "/v1/admin/", 1)
	a.must(t, 200, admin, "POST", moderated+"/purge", obj{"reason": "Spam."})
	swept(i, true)

	i = a.uploaded(t, ada)
	other := read[obj](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "A title", "content": "x"}))
	path = fmt.Sprintf("/v1/posts/%.0f", other["id"])
	comment := read[obj](t, a.must(t, 201, ada, "POST", path+"/comments", obj{"content": text(i)}))
	swept(i, false)
	a.must(t, 200, admin, "POST", fmt.Sprintf("/v1/admin/comments/%.0f/revisions/0/redact", comment["id"]),
		obj{"reason": "It has an address."})
	swept(i, true)

	i = a.uploaded(t, ada)
	a.must(t, 201, ada, "PUT", "/v1/me/drafts/one", obj{"content": text(i)})
	swept(i, false)
	a.must(t, 200, ada, "PUT", "/v1/me/drafts/one", obj{"content": "x"}, header{"If-Match", "*"})
	swept(i, true)

	i = a.uploaded(t, ada)
	a.must(t, 200, ada, "PUT", "/v1/me/drafts/one", obj{"content": text(i)}, header{"If-Match", "*"})
	a.must(t, 204, ada, "DELETE", "/v1/me/drafts/one", nil)
	swept(i, true)

	i = a.uploaded(t, ada)
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": i.URL})
	swept(i, false)
	a.must(t, 201, ada, "PUT", "/v1/me/drafts/two", obj{"content": text(i)})
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": ""})
	swept(i, false)
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": i.URL})
	a.exec(t, "UPDATE users SET deleted_at=NULL, banned_until='9999-12-31' WHERE id=?", ada.ID)
	_, err := privacy.New(a.store).DeleteBannedUser(t.Context(), admin.ID, ada.ID, "Spam.")
	require.NoError(t, err)
	_, err = privacy.New(a.store).PurgeUser(t.Context(), ada.ID)
	require.NoError(t, err)
	swept(i, true)
	assert.Empty(t, filesIn(t, dir))
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM image_uses"))
}

// An image is hidden while its texts are deleted, comes back with them, and is deleted with a text that is erased. What
// others write neither shows nor keeps it.
func TestImages_areHiddenWithTheirTexts(t *testing.T) {
	t.Parallel()
	objects := imagesIn(t, t.TempDir())
	a := newAPI(t, modes[0], withImages(objects))
	ada, bob := a.account(t), a.account(t)
	mod, admin := a.promoted(t, a.account(t), models.RoleModerator), a.promoted(t, a.account(t), models.RoleAdmin)
	// seen checks who can read an image: everybody, or its user and moderators alone, or nobody.
	const all, few, none = 200, 403, 404
	seen := func(what string, i uploaded, by int) {
		t.Helper()
		tag := header{"If-None-Match", fmt.Sprintf(`"%[1]s", "%[1]s-thumb"`, i.ID[:16])}
		for _, path := range []string{i.URL, i.ThumbnailURL} {
			for _, stranger := range []account{{}, bob} {
				status := map[int]int{all: 200, few: 404, none: 404}[by]
				r := a.send(t, stranger, "GET", path, nil)
				assert.Equal(t, status, r.Status, "%s: %s by a stranger", what, path)
				unchanged := map[int]int{all: 304, few: 404, none: 404}[by]
				assert.Equal(
					t,
					unchanged,
					a.send(t, stranger, "GET", path, nil, tag).Status,
					"%s: %s again",
					what,
					path,
				)
			}
			for _, reader := range []account{ada, mod} {
				status := map[int]int{all: 200, few: 200, none: 404}[by]
				r := a.send(t, reader, "GET", path, nil)
				assert.Equal(t, status, r.Status, "%s: %s by its user or a moderator", what, path)
				if by == few {
					assert.Equal(t, "no-store", r.Header.Get("Cache-Control"), "%s", what)
				}
			}
		}
		for path, reader := range map[string]account{
			"/v1/me/images": ada, fmt.Sprintf("/v1/admin/users/%d/images", ada.ID): mod,
		} {
			var found []bool
			for _, item := range read[page[obj]](t, a.must(t, 200, reader, "GET", path, nil)).Items {
				if item["id"] == i.ID {
					found = append(found, item["hidden"].(bool))
				}
			}
			assert.Equal(t, map[int][]bool{all: {false}, few: {true}, none: nil}[by], found, "%s: %s", what, path)
		}
	}
	reason := obj{"reason": "It shows too much."}
	newPost := func(as account, content string) string {
		p := read[obj](t, a.must(t, 201, as, "POST", "/v1/posts", obj{"title": "A title", "content": content}))
		return fmt.Sprintf("/v1/posts/%.0f", p["id"])
	}
	newComment := func(as account, post, content string) string {
		c := read[obj](t, a.must(t, 201, as, "POST", post+"/comments", obj{"content": content}))
		return fmt.Sprintf("/v1/comments/%.0f", c["id"])
	}
	byModerator := func(path string) string { return strings.Replace(path, "/v1/", "/v1/admin/", 1) }
	show := func(i uploaded) string { return "![](" + i.URL + ")" }
	operate := func() {
		t.Helper()
		_, err := workers.NewModerator(moderation.New(a.store), counters.NewTargets(a.store, nil)).Moderate(t.Context())
		require.NoError(t, err)
	}

	i := a.uploaded(t, ada)
	seen("before it is used", i, all)
	a.must(t, 201, ada, "PUT", "/v1/me/drafts/own", obj{"content": show(i)})
	seen("in a draft", i, all)
	post := newPost(ada, show(i))
	a.must(t, 201, bob, "PUT", "/v1/me/drafts/copy", obj{"content": show(i)})
	quote := newPost(bob, show(i))
	newComment(bob, quote, show(i))
	seen("in a post", i, all)
	a.must(t, 204, ada, "DELETE", post, nil)
	seen("deleted by its author", i, few)
	a.must(t, 200, ada, "POST", post+"/restore", nil)
	seen("restored by its author", i, all)
	a.must(t, 200, mod, "POST", byModerator(post)+"/delete", reason)
	seen("deleted by a moderator", i, few)
	another := newComment(ada, quote, show(i))
	seen("in another comment, too", i, all)
	a.must(t, 200, mod, "POST", byModerator(quote)+"/delete", reason)
	seen("below a deleted post", i, few)
	a.must(t, 200, mod, "POST", byModerator(quote)+"/restore", reason)
	a.must(t, 200, mod, "POST", byModerator(another)+"/delete", reason)
	seen("all of its texts deleted", i, few)
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": i.URL})
	seen("in a profile", i, all)
	a.must(t, 200, ada, "PATCH", "/v1/me", obj{"avatar_url": ""})
	detail := read[obj](t, a.must(t, 200, mod, "GET", "/v1/admin/images/"+i.ID, nil))
	assert.Equal(t, float64(ada.ID), detail["user"].(map[string]any)["id"])
	assert.Len(t, detail["uses"], 2)
	a.must(t, 200, mod, "POST", byModerator(post)+"/restore", reason)
	seen("restored by a moderator", i, all)
	a.must(t, 200, mod, "POST", byModerator(post)+"/delete", reason)
	a.must(t, 200, admin, "POST", byModerator(post)+"/purge", reason)
	seen("purged, with a deleted comment", i, few)
	a.must(t, 200, admin, "POST", byModerator(another)+"/purge", reason)
	seen("purged", i, none)
	a.sweep(t, objects)
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM image_uses"))

	i = a.uploaded(t, ada)
	post = newPost(ada, show(i))
	a.must(t, 200, ada, "PATCH", post, obj{"content": "nothing"}, header{"If-Match", "*"})
	seen("in an old version", i, all)
	a.must(t, 200, mod, "POST", byModerator(post)+"/revisions/0/redact", reason)
	seen("redacted", i, none)

	i = a.uploaded(t, ada)
	post = newPost(bob, "text")
	edited := a.promoted(t, ada, models.RoleModerator)
	a.exec(t, "UPDATE posts SET user_id=? WHERE id=?", edited.ID, strings.TrimPrefix(post, "/v1/posts/"))
	a.must(t, 200, edited, "PATCH", post, obj{"content": show(i)}, header{"If-Match", "*"})
	a.due(t)
	a.sweep(t, objects)
	seen("in a text that its user edited", i, all)
	a.exec(t, "UPDATE users SET role=? WHERE id=?", models.RoleUser, ada.ID)

	unused := a.uploaded(t, ada)
	started := a.must(t, 202, mod, "POST", fmt.Sprintf("/v1/admin/users/%d/content/delete", ada.ID), reason)
	operate()
	seen("all content deleted", i, few)
	a.must(t, 202, mod, "POST", started.Header.Get("Location")+"/undo", reason)
	operate()
	seen("all content restored", i, all)
	a.exec(t, "UPDATE users SET banned_until='9999-12-31' WHERE id=?", ada.ID)
	_, err := privacy.New(a.store).DeleteBannedUser(t.Context(), admin.ID, ada.ID, "Spam.")
	require.NoError(t, err)
	assert.Equal(t, 200, a.send(t, bob, "GET", i.URL, nil).Status, "in a text of a deleted account")
	assert.Equal(t, 404, a.send(t, bob, "GET", unused.URL, nil).Status, "unused, of a deleted account")
}

// A post that is written while the job looks at its image either keeps the image, or is written after the job has
// marked it. The job never deletes an image that is in use.
func TestImages_inUseSurviveTheJobThatRaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	objects := imagesIn(t, dir)
	a := newAPI(t, modes[0], withImages(objects))
	ada := a.account(t)
	kept, gone := 0, 0
	for range 40 {
		i := addImage(t, a.store, objects, ada.ID)
		a.due(t)
		var both sync.WaitGroup
		both.Go(func() { a.sweep(t, objects) })
		both.Go(func() {
			_, err := content.New(a.store).CreatePost(t.Context(), models.Author{ID: ada.ID},
				models.PostText{Title: "A title", Content: "![x](" + models.ImagePath + i.Name + ")"})
			assert.NoError(t, err)
		})
		both.Wait()
		a.sweep(t, objects)
		uses := a.number(t, "SELECT COUNT(*) FROM image_uses WHERE image_id=?", i.ID)
		_, err := media.New(a.store).ImageByName(t.Context(), i.Name)
		if uses == 0 {
			gone++
			assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
			continue
		}
		kept++
		require.NoError(t, err, "an image in use was deleted")
		a.must(t, 200, account{}, "GET", models.ImagePath+i.Name, nil)
	}
	t.Logf("%d kept, %d deleted before the post", kept, gone)
}

// failing is a storage that fails when told to.
type failing struct {
	images.Store
	put, remove func(name string) error
}

func (f *failing) Put(ctx context.Context, name, kind string, data []byte) error {
	if f.put != nil {
		if err := f.put(name); err != nil {
			return err
		}
	}
	return f.Store.Put(ctx, name, kind, data)
}

func (f *failing) Delete(ctx context.Context, name string) error {
	if f.remove != nil {
		if err := f.remove(name); err != nil {
			return err
		}
	}
	return f.Store.Delete(ctx, name)
}

var errNoStorage = errors.New("the storage is down")

// Whichever step of an upload or of a deletion is the last, a later run of the job leaves nothing behind.
func TestImages_interruptedLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	objects := &failing{Store: imagesIn(t, dir)}
	a := newAPI(t, modes[0], withImages(objects))
	ada := a.account(t)
	isThumb := func(name string) bool { return strings.HasSuffix(name, ".thumb") }

	objects.put = func(name string) error {
		if isThumb(name) {
			return errNoStorage
		}
		return nil
	}
	r := a.upload(t, ada, asPNG(t, 600, 300))
	require.Equal(t, 503, r.Status, "%s", r)
	assert.NotEmpty(t, r.Header.Get("Retry-After"))
	assert.Len(t, filesIn(t, dir), 1)
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM images WHERE state=2"))
	a.sweep(t, objects)
	assert.Empty(t, filesIn(t, dir))

	// The process was killed before the mark: the row stays pending, and is due after a day.
	objects.put = nil
	a.uploaded(t, ada)
	a.exec(t, "UPDATE images SET state=1")
	a.sweep(t, objects)
	assert.Len(t, filesIn(t, dir), 2)
	a.due(t)
	a.sweep(t, objects)
	assert.Empty(t, filesIn(t, dir))
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM images"))

	// The job was killed between the objects: its next run continues.
	i := a.uploaded(t, ada)
	a.must(t, 204, ada, "DELETE", i.URL, nil)
	objects.remove = func(name string) error {
		if !isThumb(name) {
			return errNoStorage
		}
		return nil
	}
	_, err := workers.NewSweeper(a.store, objects).Sweep(t.Context(), 100)
	require.ErrorIs(t, err, errNoStorage)
	assert.Len(t, filesIn(t, dir), 1)
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM images WHERE state=3 AND due_at>NOW()"))
	objects.remove = nil
	a.due(t)
	a.sweep(t, objects)
	assert.Empty(t, filesIn(t, dir))
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM images"))
}

// One user uploads one image at a time, and another address is served while a body arrives slowly.
func TestImages_oneUploadOfAUserAtATime(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withImages(imagesIn(t, t.TempDir())))
	ada := a.account(t)
	body, form := imageForm(t, "file", asPNG(t, 2, 2))
	begin := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
		require.NoError(t, err)
		fmt.Fprintf(conn, "POST /v1/images HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s%s", ada.Token, form.value, len(body)+10_000, body[:100],
			strings.Repeat("x", 9000))
		return conn
	}
	slow := begin()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		r := a.upload(t, ada, asPNG(t, 2, 2))
		if r.Status != 429 { // it came first, and may have been the one in whose way the slow upload was
			require.NoError(t, slow.Close())
			slow = begin()
		}
		return r.Status == 429, r.String()
	})
	require.NoError(t, slow.Close())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, http.StatusCreated, a.upload(t, ada, asPNG(t, 2, 2)).Status)
	}, 10*time.Second, 10*time.Millisecond)
}

// Images are kept in S3, too. While it is gone or does not answer, uploads and reads get 503, and no image is shown
// that is not stored.
func TestImages_inS3(t *testing.T) {
	t.Parallel()
	server := testkit.S3(t)
	objects := imagesIn(t, server.Address())
	a := newAPI(t, modes[0], withImages(objects))
	ada := a.account(t)
	i := a.uploaded(t, ada)
	fails := func() {
		t.Helper()
		r := a.upload(t, ada, asPNG(t, 2, 2))
		require.Equal(t, 503, r.Status, "%s", r)
		assert.NotEmpty(t, r.Header.Get("Retry-After"))
		r = a.must(t, 503, account{}, "GET", i.URL, nil)
		assert.NotContains(t, r.Header.Get("Cache-Control"), "public")
		assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM images WHERE state=2"))
	}
	works := func() {
		t.Helper()
		r := a.must(t, 200, account{}, "GET", i.URL, nil)
		assert.Len(t, r.Body, int(i.Bytes))
	}
	works()
	require.NoError(t, server.Pause())
	fails()
	require.NoError(t, server.Resume())
	works()
	require.NoError(t, server.Kill())
	fails()
	require.NoError(t, server.Start(t.Context()))
	works()
	a.must(t, 204, ada, "DELETE", i.URL, nil)
	a.due(t)
	a.sweep(t, objects)
	_, _, err := objects.Open(t.Context(), i.ID, 0)
	require.ErrorIs(t, err, images.ErrMissing)
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM images"))
}
