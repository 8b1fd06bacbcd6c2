package testkit

// Volume returns the size of input that a test should use: full, or race under the race detector, which is up to ten
// times slower. `make test` runs without the detector, and so with the full sizes.
func Volume(full, race int) int {
	if raceEnabled {
		return race
	}
	return full
}
