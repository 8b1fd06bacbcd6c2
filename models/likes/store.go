// Package likes holds likes in MySQL: batches of events, shards with their watermarks and gaps, dead letters, voids and
// rings, and the counts that are compared with the rows.
package likes

import "likewise/models/db"

// Store keeps likes in MySQL. It is safe for concurrent use.
type Store struct {
	*db.DB

	users userRows // for ApplyLikes
}

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{DB: d} }
