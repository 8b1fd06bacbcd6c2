package workers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/privacy"
)

// exported reads a user's archive, which must be ready: the ids in each section, and the manifest.
func (p *pipeline) exported(userID int64) (ids map[string][]int64, m manifest) {
	p.t.Helper()
	export, err := privacy.New(p.store).RequestExport(p.t.Context(), userID)
	require.NoError(p.t, err)
	require.Equal(p.t, models.ExportReady, export.State)
	var all bytes.Buffer
	for i := range export.Chunks {
		chunk, err := privacy.New(p.store).ExportChunk(p.t.Context(), export, i)
		require.NoError(p.t, err)
		all.Write(chunk)
	}
	require.EqualValues(p.t, export.Size, all.Len())
	zip, err := gzip.NewReader(&all)
	require.NoError(p.t, err)
	ids = map[string][]int64{}
	for files := tar.NewReader(zip); ; {
		header, err := files.Next()
		if err == io.EOF {
			return ids, m
		}
		require.NoError(p.t, err)
		name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "likewise-export/"), ".json")
		if name == lastFile {
			require.NoError(p.t, json.NewDecoder(files).Decode(&m))
			continue
		}
		var rows []struct{ ID json.RawMessage }
		require.NoError(p.t, json.NewDecoder(files).Decode(&rows))
		section, _, _ := strings.Cut(name, "-")
		for _, row := range rows {
			var id int64
			_ = json.Unmarshal(row.ID, &id) // some rows have no id, and ids of sessions are strings
			ids[section] = append(ids[section], id)
		}
	}
}

// writes creates posts with long texts and old versions.
func (p *pipeline) writes(userID int64, posts int) (ids []int64) {
	p.t.Helper()
	for i := range posts {
		result, err := p.store.Pool().Exec(`
			INSERT INTO posts (user_id, title, content, version)
			VALUES (?,?,REPEAT(?,1000),2)`, userID, fmt.Sprint("Post ", i), fmt.Sprintf("text %05d ", i))
		require.NoError(p.t, err)
		id, err := result.LastInsertId()
		require.NoError(p.t, err)
		p.exec(`
			INSERT INTO post_revisions (post_id, version, title, content, tags)
			VALUES (?,0,'Old','old','a b'),(?,1,'Older','older','')`, id, id)
		ids = append(ids, id)
	}
	return ids
}

// TestExporter_ofTwoProcessesBuildsOneArchive runs four Exporters at once, and stops each of them several times.
func TestExporter_ofTwoProcessesBuildsOneArchive(t *testing.T) {
	t.Parallel()
	p := setup(t)
	bob := p.deletable("bob")
	want := p.writes(bob, 230)
	p.writes(p.author.ID, 3)
	_, err := privacy.New(p.store).RequestExport(t.Context(), bob)
	require.NoError(t, err)
	_, err = privacy.New(p.store).RequestExport(t.Context(), p.author.ID)
	require.NoError(t, err)
	var together sync.WaitGroup
	for range 4 {
		together.Go(func() {
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			e := NewExporter(privacy.New(p.store))
			e.turn = 1 // a chunk a turn
			_, _, err := e.Export(ctx)
			assert.NoError(t, err)
		})
	}
	together.Wait()
	ids, m := p.exported(bob)
	assert.Equal(t, want, ids["posts"], "every post once, in order")
	assert.Len(t, ids["post_revisions"], 2*len(want))
	assert.True(t, m.Complete)
	assert.Equal(t, bob, m.UserID)
	ids, m = p.exported(p.author.ID)
	assert.Len(t, ids["posts"], 3)
	assert.Equal(t, p.author.ID, m.UserID)
	assert.Zero(t, p.count(`
		SELECT COUNT(*)
		FROM export_chunks c JOIN exports e ON e.id=c.export_id
		WHERE c.number>=e.chunks OR LENGTH(c.data)>=1048576`))
}

func TestExporter_endsAnArchiveThatIsTooLarge(t *testing.T) {
	t.Parallel()
	p := setup(t)
	bob := p.deletable("bob")
	p.writes(bob, 230)
	_, err := privacy.New(p.store).RequestExport(t.Context(), bob)
	require.NoError(t, err)
	e := NewExporter(privacy.New(p.store))
	e.maxSize = 4000
	built, _, err := e.Export(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, built)
	ids, m := p.exported(bob)
	assert.False(t, m.Complete)
	assert.Contains(t, m.Missing, "comments")
	assert.NotContains(t, m.Missing, "profile")
	assert.Less(t, len(ids["posts"]), 230)
}

// TestExporter_continuesAfterAStop stops an Exporter between any two of its chunks.
func TestExporter_continuesAfterAStop(t *testing.T) {
	t.Parallel()
	p := setup(t)
	bob := p.deletable("bob")
	want := p.writes(bob, 120)
	export, err := privacy.New(p.store).RequestExport(t.Context(), bob)
	require.NoError(t, err)
	for steps := 0; export.State == models.ExportBuilding; steps++ {
		require.Less(t, steps, 100)
		e := NewExporter(privacy.New(p.store))
		rows := &exportedRows{store: privacy.New(p.store), userID: bob}
		chunk, next, err := e.next(t.Context(), export, rows)
		require.NoError(t, err)
		if steps%2 == 0 {
			late := *export
			ok, err := privacy.New(p.store).AppendExport(t.Context(), export, chunk, next, next.Section == "")
			require.NoError(t, err)
			require.True(t, ok)
			ok, err = privacy.New(p.store).AppendExport(t.Context(), &late, chunk, next, next.Section == "")
			require.NoError(t, err)
			assert.False(t, ok, "a late exporter must not write the chunk again")
		}
		export, err = privacy.New(p.store).RequestExport(t.Context(), bob)
		require.NoError(t, err)
	}
	ids, m := p.exported(bob)
	assert.Equal(t, want, ids["posts"])
	assert.True(t, m.Complete)
}
