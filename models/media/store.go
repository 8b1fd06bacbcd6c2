// Package media holds the rows of images in MySQL, and which texts, drafts and profiles use them.
package media

import "likewise/models/db"

// Store keeps them in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
