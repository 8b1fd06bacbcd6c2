package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// TestExport_survivesKills asks for an archive, kills who builds it with SIGKILL in the middle, twice, lets two others
// finish it at the same time, and downloads it from another process than the one that was asked for it.
func TestExport_survivesKills(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := s.accounts(1)[0]
	posts := testkit.Volume(400, 140)
	noise := make([]byte, 45_000)
	for i := range posts {
		rand.Read(noise)
		s.exec(
			"INSERT INTO posts (user_id, title, content) VALUES (?,?,?)",
			ada.id,
			fmt.Sprint("Post ", i),
			base64.StdEncoding.EncodeToString(noise),
		)
	}
	_, url := s.api()
	call(t, url, ada, "GET", "/v1/me/export", nil, http.StatusAccepted, nil)
	chunks := 0
	for range 2 {
		before := chunks
		builder := s.start("cron", "run", "export")
		testkit.Eventually(t, patience, func() (bool, string) {
			chunks = s.count("SELECT chunks FROM exports")
			return chunks > before+3, "nothing is built"
		})
		builder.Kill()
		require.Equal(t, 1, s.count("SELECT state FROM exports"), "it was built before it could be killed")
	}
	assert.Equal(t, s.count("SELECT chunks FROM exports"), s.count("SELECT COUNT(*) FROM export_chunks"))
	first, second := s.start("cron", "run", "export"), s.start("cron", "run", "export")
	assert.Zero(t, first.await())
	assert.Zero(t, second.await())

	_, url = s.api()
	var r reply
	testkit.Eventually(t, patience, func() (bool, string) {
		var err error
		r, err = send(t, url, ada, "GET", "/v1/me/export", nil)
		require.NoError(t, err)
		if r.status == http.StatusOK {
			return true, ""
		}
		// A builder leaves an archive whose chunk another one has written, be it one that is dead by now, to the next
		// run.
		s.succeed("cron", "run", "export")
		return false, fmt.Sprint(r.status)
	})
	zip, err := gzip.NewReader(strings.NewReader(r.body))
	require.NoError(t, err)
	var titles []string
	complete := false
	for files := tar.NewReader(zip); ; {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		switch name := strings.TrimPrefix(header.Name, "likewise-export/"); {
		case name == "manifest.json":
			var m struct{ Complete bool }
			require.NoError(t, json.NewDecoder(files).Decode(&m))
			complete = m.Complete
		case strings.HasPrefix(name, "posts"):
			var rows []struct{ Title string }
			require.NoError(t, json.NewDecoder(files).Decode(&rows), name)
			for _, row := range rows {
				titles = append(titles, row.Title)
			}
		}
	}
	assert.True(t, complete)
	require.Len(t, titles, posts)
	for i, title := range titles {
		require.Equal(t, fmt.Sprint("Post ", i), title)
	}
	assert.Equal(t, "built 0 archives, deleted 0\n", s.succeed("cron", "run", "export"))
}
