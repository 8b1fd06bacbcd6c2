package content

import (
	"strconv"
	"strings"

	"likewise/models/accounts"
	"likewise/models/db"
)

// PostView is the part of its posts that a list reads.
type PostView string

// The views. The zero value is ViewFull.
const (
	ViewSummary PostView = "summary" // Excerpt and LastCommenter, without Content
	ViewFull    PostView = "full"    // Content, without Excerpt and LastCommenter
)

// PostColumns are the columns of a Post in every view. They have one placeholder, the viewer's id.
const PostColumns = `
	p.id, ` + accounts.AuthorColumns + `, p.title, ` + TagNames + ` AS tags, p.likes_count, p.comments_count,
	p.status, p.version, p.created_at, p.updated_at, p.hot_score, p.active_at, p.locked, p.pinned,
	EXISTS (SELECT 1 FROM bookmarks m WHERE m.user_id=? AND m.post_id=p.id) AS bookmarked`

// FullColumns are the columns of a post that summaries do not have.
const FullColumns = `p.content`

const summaryColumns = `
	p.excerpt, lc.id AS last_commenter_id, lc.username AS last_commenter_username,
	lc.display_name AS last_commenter_display_name, lc.avatar_url AS last_commenter_avatar_url`

// Columns returns the columns of a Post in the view, with one placeholder, the viewer's id. They need the join.
func (v PostView) Columns() string {
	if v == ViewSummary {
		return PostColumns + `, ` + summaryColumns
	}
	return PostColumns + `, ` + FullColumns
}

// Join returns the join that follows the post p and its author u in the view.
func (v PostView) Join(viewer int64) string {
	if v != ViewSummary {
		return ""
	}
	return lastCommenter(viewer)
}

// lastCommenter joins the author lc of the post's latest comment that is not deleted, from one entry of an index. If
// the viewer blocks that author, lc is empty: a search for an earlier comment could read all comments on the post.
//
// The order names every column of the index. Without the first two, MySQL reads and sorts all comments on the post.
func lastCommenter(viewer int64) string {
	join := `LEFT JOIN users lc FORCE INDEX (PRIMARY) ON lc.id=(
			SELECT c.user_id
			FROM comments c FORCE INDEX (idx_post_status_created)
			WHERE c.post_id=p.id AND c.status=` + db.SQLNormal + `
			ORDER BY c.post_id DESC, c.status DESC, c.created_at DESC, c.id DESC
			LIMIT 1)`
	if viewer == 0 {
		return join
	}
	return join + ` AND ` + strings.Replace(db.NotBlocked("lc.id"), "?", strconv.FormatInt(viewer, 10), 1)
}
