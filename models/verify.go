package models

// TargetTally is a post or comment with its stored counts and the counts of its rows.
type TargetTally struct {
	ID        int64
	Status    Status
	Likes     int64 // likes_count
	LikeRows  int64
	Children  int64 // comments_count or replies_count
	ChildRows int64
	HotScore  int64 // hot_score; 0 for comments, which have none
	HotWant   int64 // the right score for this likes_count
	Depth     int64 // depth; 0 for posts, which have none
	DepthWant int64 // the right depth below this parent
	TagsStale int64 // rows of post_tags that differ from the post; 0 for comments
}

// Difference is a part of a target that disagrees with another record of it.
type Difference struct {
	Target   Target
	Problem  string
	Repaired bool
	Failure  string // why a repair failed; "" if there was none
	// Undecided is set if the target changes too often, or its last change is still on its way, so that nothing is
	// known.
	Undecided bool
}

func (d Difference) String() string {
	s := d.Target.String() + ": " + d.Problem
	if d.Repaired {
		s += " (repaired)"
	}
	if d.Failure != "" {
		s += " (not repaired: " + d.Failure + ")"
	}
	return s
}

// Reconciliation is the comparison and repair, on behalf of an admin, of a target or of the targets of a shard.
type Reconciliation struct {
	ActorID    int64
	TargetType string // "post", "comment" or "shard"
	TargetID   int64  // of a shard, its number
	Reason     string
}

// StrangeLike is a like of a user who has no row.
type StrangeLike struct {
	Target Target
	UserID int64
}
