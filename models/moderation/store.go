// Package moderation holds what moderators do: cases and reports, removals, redactions, purges, operations on all that
// a user wrote, bans, and rings of likes.
package moderation

import "likewise/models/db"

// Store keeps the work of moderators in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
