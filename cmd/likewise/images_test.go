package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// An api decodes uploads in a process of its own, whose time Linux adds to that of the ended children.
func TestAPI_decodesImagesApart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := s.accounts(1)[0]
	api, url := s.api("--images=" + t.TempDir())
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "drawing.png")
	require.NoError(t, err)
	require.NoError(t, png.Encode(part, image.NewNRGBA(image.Rect(0, 0, 600, 400))))
	require.NoError(t, form.Close())
	testkit.Eventually(t, patience, func() (bool, string) { // on a busy machine, decoding may end too late
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/images",
			bytes.NewReader(body.Bytes()))
		require.NoError(t, err)
		request.Header.Set("Content-Type", form.FormDataContentType())
		request.Header.Set("Authorization", "Bearer "+ada.token)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		return response.StatusCode == http.StatusCreated, response.Status
	})
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", api.Pid()))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	assert.NotEqual(t, []string{"0", "0"}, strings.Fields(rest)[13:15], "the time of its children")
}
