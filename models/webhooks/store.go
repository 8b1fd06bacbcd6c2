// Package webhooks keeps the endpoints of webhooks, and what is delivered to them.
package webhooks

import "likewise/models/db"

// Store keeps endpoints and deliveries in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
