package models

import "time"

// PipelineSample is the state of the pipeline at one time, of all shards together. What was unknown is nil: what Redis
// alone knows, while it did not answer, and all but dead letters in direct mode. What a shard hides is left out.
type PipelineSample struct {
	Slot              time.Time // the beginning of the SampleEvery in which it was taken
	AcceptedPerSecond *float64  // events that the gate accepted since the sample before
	AppliedPerSecond  *float64  // events that reached MySQL since the sample before
	OutboxEvents      *int64    // likes and claims that wait for Kafka
	LagEvents         *int64    // events that are accepted and not in MySQL
	LagSeconds        *float64  // the age of the oldest of them: at most the true one
	ClosedShards      *int
	OpenGaps          *int
	DeadLetters       int64
}

// Times of samples.
const (
	SampleEvery = 10 * time.Second
	SamplesKept = 24 * time.Hour
)
