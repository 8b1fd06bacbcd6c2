package models

import "time"

// ExportState is the progress of an Export.
type ExportState int8

// The states.
const (
	ExportBuilding ExportState = 1
	ExportReady    ExportState = 2
)

// MaxExportSize is the size in bytes at which an archive ends before it is complete.
const MaxExportSize = 1 << 30

// Export is an archive of all data about a user, or the request for it. Its chunks are rows, so that any process can
// continue an archive that another one has begun, and any process can send it. See workers.Exporter.
type Export struct {
	ID          int64
	UserID      int64
	State       ExportState
	Place       ExportCursor `gorm:"embedded"` // of the next row
	Chunks      int
	Size        int64 // of the chunks, in bytes
	RequestedAt time.Time
	ReadyAt     *time.Time // nil while it is being built
	ExpiresAt   time.Time
}

// ExportCursor is a place in an archive.
type ExportCursor struct {
	Section    string // one of ExportSections; "" after the last
	Part       int    // of the section, from 1
	AfterValue int64  // with AfterID the key of the last row before it
	AfterID    int64
}

// ExportItem is a row of an export, ready to be written as JSON.
type ExportItem struct {
	Key   ListKey // of its place in the section
	Value any
}
