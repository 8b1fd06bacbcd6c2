package workers

import (
	"time"

	"likewise/models"
)

// arrivals measures how long the runs of a shard have been waiting for MySQL. Neither Redis nor MySQL knows the age of
// a run that is in Kafka. So Monitor notes the last accepted position each time, and when it first saw it.
//
// The age is at most the true one, and one or two intervals of Monitor less. A process that starts begins at zero.
type arrivals struct{ notes []arrival } // in ascending order

// arrival is a position with the time at which it was first seen. Runs after the arrival before it came in between.
type arrival struct {
	last models.Position
	seen time.Time
}

// arrivalsKept bounds the memory of a long outage.
const arrivalsKept = 256

// age notes that last is accepted and applied is in MySQL, and returns the age of the oldest run in between; 0 if none
// is.
func (a *arrivals) age(last, applied models.Position, now time.Time) time.Duration {
	for len(a.notes) > 0 && !a.notes[0].last.After(applied) {
		a.notes = a.notes[1:]
	}
	if !last.After(applied) {
		a.notes = nil
		return 0
	}
	if n := len(a.notes); n == 0 || last.After(a.notes[n-1].last) {
		if n >= arrivalsKept {
			a.notes = thinned(a.notes)
		}
		a.notes = append(a.notes, arrival{last, now})
	}
	return max(0, now.Sub(a.notes[0].seen))
}

// thinned merges neighbours. The runs of both get the time of the older ones.
func thinned(notes []arrival) []arrival {
	var fewer []arrival
	for i := 0; i+1 < len(notes); i += 2 {
		fewer = append(fewer, arrival{notes[i+1].last, notes[i].seen})
	}
	return fewer
}
