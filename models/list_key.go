package models

// ListKey is the place in a list after which it continues: the value of the sort column and the id of the last item
// read. A time is in seconds since 1970 UTC.
type ListKey struct {
	Value int64
	ID    int64
}
