// Package stock holds drops and their claims in MySQL: what a drop sells, who has claimed a share, and the events of
// claims that the like writer applies.
package stock

import "likewise/models/db"

// Store keeps them in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
