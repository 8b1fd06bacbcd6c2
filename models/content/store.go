// Package content holds posts and comments in MySQL, with their tags, revisions, deletions, lists, threads and search.
package content

import "likewise/models/db"

// Store keeps them in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
