package workers

import (
	"context"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// DriftWatch compares a page of posts, comments and drops at a time, in an endless loop, so that a metric shows
// differences.
// It starts at a random id, so that a scheduler that runs single pages covers all targets over time. It repairs
// nothing: a difference is caused by a bug or by a manual change of the data, and an operator must look into it.
type DriftWatch struct {
	verifier *Verifier
	after    map[models.TargetKind]int64
	drift    prometheus.Counter
	compared prometheus.Counter
}

// driftPage is how many posts, how many comments and how many drops a call of Watch compares.
const driftPage = 500

// NewDriftWatch returns a DriftWatch that calls report for each difference. In direct mode, r and likes are nil.
func NewDriftWatch(
	store *db.DB,
	r *counters.Redis,
	likes *counters.Likes,
	reg prometheus.Registerer,
	report func(models.Difference),
) *DriftWatch {
	w := &DriftWatch{
		verifier: NewVerifier(store, r, likes, false, report),
		after:    map[models.TargetKind]int64{},
		drift: prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_drift_total",
			Help: "Differences found between counts, rows and Redis. Should always be 0."}),
		compared: prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_drift_compared_total",
			Help: "Posts, comments and drops that the drift watch has compared."}),
	}
	reg.MustRegister(w.drift, w.compared)
	return w
}

// Watch compares one page of each kind and returns the number of differences.
func (w *DriftWatch) Watch(ctx context.Context) (differences int, err error) {
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment, models.KindDrop} {
		after, begun := w.after[kind]
		if !begun {
			last, err := likes.New(w.verifier.store.DB).LastID(ctx, kind)
			if err != nil {
				return differences, err
			}
			after = rand.Int64N(max(1, last))
		}
		sum, next, err := w.verifier.Sample(ctx, kind, after, driftPage)
		if err != nil {
			return differences, err
		}
		w.after[kind] = next
		differences += sum.Differences
		w.drift.Add(float64(sum.Differences))
		w.compared.Add(float64(sum.Posts + sum.Comments + sum.Drops - sum.Undecided))
	}
	return differences, nil
}
