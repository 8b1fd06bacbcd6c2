package models

// notBlocked is the condition, with one placeholder for the viewer's id, that the author in column is not one whose
// content the viewer has chosen not to see. It holds for the anonymous, whose id is 0.
func notBlocked(column string) string {
	return "NOT EXISTS (SELECT 1 FROM blocks b WHERE b.user_id=? AND b.blocked_id=" + column + ")"
}
