// Package reader holds what a user reads and keeps: the feed, bookmarks, drafts, read marks, unread comments and the
// history.
package reader

import "likewise/models/db"

// Store keeps what users read and keep in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
