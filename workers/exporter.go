package workers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"likewise/models"
	"likewise/models/privacy"
)

// Exporter builds the archives of their data that users request, and deletes expired archives.
//
// An archive is a compressed tar of JSON files. A section, such as posts, has one file, or several if it is long. Each
// file is a separate gzip member, and a chunk in MySQL. The transaction that writes a chunk also stores the place where
// the export continues. So the next run continues after a killed Exporter, and two Exporters cannot write the same
// chunk. An Exporter holds one file and one page of rows in memory. It reads the sections one by one, so an archive is
// not a snapshot.
type Exporter struct {
	store   *privacy.Store
	now     func() time.Time
	maxSize int64
	turn    time.Duration
}

// NewExporter returns an Exporter.
func NewExporter(store *privacy.Store) *Exporter {
	return &Exporter{store: store, now: store.Now, maxSize: models.MaxExportSize, turn: exportTurn}
}

const (
	exportTurn  = 10 * time.Second // for an export, before the next export has its turn
	exportFile  = 256 << 10        // bytes of JSON after which a section continues in another file
	exportRows  = 50               // rows a query; about 3 MiB of the largest posts
	exportsRead = 100              // exports a query
)

// Export builds requested archives until its time is nearly over. It returns the numbers of archives built and deleted.
func (e *Exporter) Export(ctx context.Context) (built, removed int, err error) {
	var failures []error
	if removed, err = e.store.RemoveExports(ctx); err != nil {
		failures = append(failures, err)
	}
	for moved := true; moved && !nearlyOver(ctx); {
		waiting, err := e.store.WaitingExports(ctx, exportsRead)
		if err != nil {
			return built, removed, errors.Join(append(failures, err)...)
		}
		moved = false
		for i := range waiting {
			before := waiting[i].Chunks
			done, err := e.build(ctx, &waiting[i])
			if done {
				built++
			}
			moved = moved || waiting[i].Chunks > before
			if err != nil && len(failures) < runFailures {
				failures = append(failures, err)
			}
			if nearlyOver(ctx) {
				break
			}
		}
	}
	return built, removed, errors.Join(failures...)
}

// build works on an export until it is done, its turn ends or another process has continued it.
func (e *Exporter) build(ctx context.Context, export *models.Export) (done bool, err error) {
	ends := e.now().Add(e.turn)
	rows := &exportedRows{store: e.store, userID: export.UserID}
	for {
		chunk, next, err := e.next(ctx, export, rows)
		if err != nil {
			return false, err
		}
		done := next.Section == ""
		ok, err := e.store.AppendExport(ctx, export, chunk, next, done)
		if err != nil || !ok || done || !e.now().Before(ends) || nearlyOver(ctx) {
			return ok && done, err
		}
	}
}

// manifest is the last file of an archive.
type manifest struct {
	UserID      int64     `json:"user_id"`
	RequestedAt time.Time `json:"requested_at"`
	Sections    []string  `json:"sections"`
	// Complete is false if the archive reached its largest size. Then Missing has the sections that are missing or
	// incomplete.
	Complete bool     `json:"complete"`
	Missing  []string `json:"missing"`
}

// next returns the chunk at the place of an export, and the place after it. After the last chunk, the Section of the
// place is empty.
func (e *Exporter) next(
	ctx context.Context,
	export *models.Export,
	rows *exportedRows,
) ([]byte, models.ExportCursor, error) {
	place, sections := export.Place, privacy.ExportSections()
	if at := slices.Index(sections, place.Section); place.Section == lastFile || export.Size >= e.maxSize {
		m := manifest{
			UserID:      export.UserID,
			RequestedAt: export.RequestedAt,
			Sections:    sections,
			Complete:    place.Section == lastFile,
			Missing:     []string{},
		}
		if !m.Complete {
			m.Missing = sections[max(at, 0):]
		}
		body, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return nil, place, fmt.Errorf("export of user %d: %w", export.UserID, err)
		}
		chunk, err := archived(export, lastFile+".json", body, true)
		return chunk, models.ExportCursor{}, err
	}
	body, more, err := rows.file(ctx, &place)
	if err != nil {
		return nil, place, err
	}
	name := export.Place.Section
	if export.Place.Part > 1 {
		name += "-" + strconv.Itoa(export.Place.Part)
	}
	chunk, err := archived(export, name+".json", body, false)
	place.Part++
	if !more {
		following := lastFile
		if at := slices.Index(sections, place.Section) + 1; at < len(sections) {
			following = sections[at]
		}
		place = models.ExportCursor{Section: following, Part: 1}
	}
	return chunk, place, err
}

// lastFile is the name of the manifest, which follows all sections.
const lastFile = "manifest"

// archived returns a gzip member with a file of the tar. If last is set, it also has the end of the tar.
func archived(export *models.Export, name string, body []byte, last bool) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	err := archive.WriteHeader(
		&tar.Header{
			Name:    "likewise-export/" + name,
			Mode:    0o600,
			Size:    int64(len(body)),
			ModTime: export.RequestedAt.Truncate(time.Second),
			Format:  tar.FormatUSTAR,
		},
	)
	if err == nil {
		_, err = archive.Write(body)
	}
	if err == nil && last {
		err = archive.Close()
	} else if err == nil {
		err = archive.Flush() // fills the last block, but does not end the archive
	}
	if err = errors.Join(err, zip.Close()); err != nil {
		return nil, fmt.Errorf("export of user %d: write %s: %w", export.UserID, name, err)
	}
	return out.Bytes(), nil
}

// exportedRows reads the rows of an export in pages. It keeps the rows of a page that did not fit into a file.
type exportedRows struct {
	store  *privacy.Store
	userID int64
	at     models.ExportCursor // before the first row of page; Part is not used
	page   []models.ExportItem
	ended  bool // page is the last of its section
}

// file returns the next file of the place's section, and moves the place behind its last row. The file is an array with
// a row a line. more reports whether the section has other rows.
func (r *exportedRows) file(ctx context.Context, place *models.ExportCursor) (body []byte, more bool, err error) {
	at := models.ExportCursor{Section: place.Section, AfterValue: place.AfterValue, AfterID: place.AfterID}
	if r.at != at {
		r.at, r.page, r.ended = at, nil, false
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for separator := "["; ; separator = "," {
		if len(r.page) == 0 && !r.ended {
			after := models.ListKey{Value: r.at.AfterValue, ID: r.at.AfterID}
			if r.page, err = r.store.ExportItems(ctx, r.userID, r.at.Section, after, exportRows); err != nil {
				return nil, false, err
			}
			r.ended = len(r.page) < exportRows
		}
		if len(r.page) == 0 || out.Len() >= exportFile {
			if separator == "[" {
				out.WriteString(separator)
			}
			out.WriteString("]\n")
			place.AfterValue, place.AfterID = r.at.AfterValue, r.at.AfterID
			return out.Bytes(), len(r.page) > 0, nil
		}
		out.WriteString(separator + "\n")
		if err := encoder.Encode(r.page[0].Value); err != nil {
			return nil, false, fmt.Errorf("export %s of user %d: %w", r.at.Section, r.userID, err)
		}
		r.at.AfterValue, r.at.AfterID = r.page[0].Key.Value, r.page[0].Key.ID
		r.page = r.page[1:]
	}
}
