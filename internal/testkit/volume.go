package testkit

// Volume returns how much input a test should use: full, or race under the race detector, which makes the same work up
// to ten times slower. Tests of large inputs call it, and `make test-mysql`, which runs without the detector, uses them
// all.
func Volume(full, race int) int {
	if raceEnabled {
		return race
	}
	return full
}
