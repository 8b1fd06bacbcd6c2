// Package privacy holds what a user can ask of the site about the account as a whole: to export it and to delete it.
package privacy

import "likewise/models/db"

// Store keeps exports and what is left of deleted accounts in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
