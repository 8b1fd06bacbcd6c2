package models

import (
	"fmt"
	"math"
	"time"
)

// hotSecondsPerTenfold is what ten times as many likes add to a HotScore, in seconds.
//
// Scores are stored. After a change of the formula, `likewise verify --repair` corrects those of existing posts.
const hotSecondsPerTenfold = 45_000

// HotScore returns a post's place in the order PostsHot: the time of its creation in seconds since 1970, plus 45,000
// seconds (12.5 hours) for each factor of ten in its likes, rounded to the second. The score changes only with likes,
// and not with the clock. So an index keeps the order.
func HotScore(createdAt time.Time, likes int64) int64 {
	return createdAt.Unix() + int64(math.Round(hotSecondsPerTenfold*math.Log10(float64(max(likes, 1)))))
}

// hotScoreSQL returns the expression for HotScore of a row of posts; likes is the expression for its likes. The score
// is rounded, not truncated: logarithms differ in the last bit between Go and the databases, and truncation would turn
// that into a second at powers of ten.
func hotScoreSQL(likes string) string {
	return fmt.Sprintf("UNIX_TIMESTAMP(created_at)+CAST(ROUND(%d*LOG10(GREATEST(%s,1))) AS SIGNED)",
		hotSecondsPerTenfold, likes)
}
