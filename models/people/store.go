// Package people holds what people have with each other in MySQL: profiles, blocks, follows, subscriptions and
// notifications.
package people

import "likewise/models/db"

// Store keeps them in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
