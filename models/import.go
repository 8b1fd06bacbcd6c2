package models

import "time"

// Each row that an import writes is recorded in the table imports, in the same transaction, under (source, kind,
// external id). A source has at most 100 characters and a kind at most 20. Both are compared without regard to case.

// ImportedUser is an account from another forum. It has no password, so nobody can log in to it.
type ImportedUser struct {
	ExternalID int64
	Usernames  []string // in order of preference: the first free one is used
	Email      string   // ends in NoEmailDomain
	Profile    Profile
	CreatedAt  time.Time
}

// ImportedPost is a post from another forum.
type ImportedPost struct {
	ExternalID int64
	AuthorID   int64
	Text       PostText
	CreatedAt  time.Time
	UpdatedAt  time.Time // of the last edit; CreatedAt if there was none
}

// ImportedComment is a comment or reply from another forum. Its parent is imported before it.
type ImportedComment struct {
	ExternalID int64
	PostID     int64
	ParentID   int64 // 0 at the top level
	AuthorID   int64
	Text       CommentText
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// ImportSource is how an earlier import compares with the accounts of another.
type ImportSource struct {
	Name  string
	Known int // of the accounts, by their ids there
	Same  int // of the known ones, created at the same time
}
