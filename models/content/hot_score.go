package content

import (
	"fmt"

	"likewise/models"
)

// HotScoreSQL returns the expression for HotScore of a row of posts; likes is the expression for its likes. The score
// is rounded, not truncated: logarithms differ in the last bit between Go and the databases, and truncation would turn
// that into a second at powers of ten.
func HotScoreSQL(likes string) string {
	return fmt.Sprintf("UNIX_TIMESTAMP(created_at)+CAST(ROUND(%d*LOG10(GREATEST(%s,1))) AS SIGNED)",
		models.HotSecondsPerTenfold, likes)
}
