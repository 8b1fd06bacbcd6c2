// Package accounts holds users in MySQL, with their sessions, tokens, roles, reserved names and standing, and the
// security log and the moderation log.
package accounts

import "likewise/models/db"

// Store keeps them in MySQL. It is safe for concurrent use.
type Store struct{ *db.DB }

// New returns the Store of a database.
func New(d *db.DB) *Store { return &Store{d} }
