package counters

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"likewise/models"
)

// loadOf returns the name and the number of the sets of a target.
func (r *Redis) loadOf(ctx context.Context, target models.Target) (load string, sets int, err error) {
	var values *redis.SliceCmd
	err = r.read(ctx, func(p redis.Pipeliner) { values = p.HMGet(ctx, r.keys(target).likes, "load", "sets") })
	if err != nil {
		return "", 0, fmt.Errorf("read %s: %w", target, err)
	}
	load, _ = values.Val()[0].(string)
	number, _ := values.Val()[1].(string)
	if load == "" {
		return "", 0, fmt.Errorf("read users of %s: %w", target, ErrNotWarm)
	}
	if sets, err = strconv.Atoi(number); err != nil {
		return "", 0, fmt.Errorf("read %s: %w", target, err)
	}
	return load, sets, nil
}

// readSets is the number of sets read in one round trip, with some thousand users.
const readSets = 16

// EachUser calls fn with batches of the users who like a warm target. It may miss those who like it meanwhile, and may
// return a user twice. If the target is cold, or becomes cold meanwhile, EachUser returns ErrNotWarm.
func (r *Redis) EachUser(ctx context.Context, target models.Target, fn func([]int64) error) error {
	load, sets, err := r.loadOf(ctx, target)
	if err != nil {
		return err
	}
	read := map[int]bool{}
	for {
		numbers := slices.DeleteFunc(setNumbers(sets), func(n int) bool { return read[n] })
		if len(numbers) == 0 {
			return nil
		}
		for batch := range slices.Chunk(numbers, readSets) {
			ids, err := r.usersOf(ctx, setKeys(r.keys(target).likes, load, batch))
			if err != nil {
				return fmt.Errorf("read users of %s: %w", target, err)
			}
			if err := fn(ids); err != nil {
				return err
			}
		}
		for _, n := range numbers {
			read[n] = true
		}
		// A set that was split meanwhile has given users to new ones.
		now, more, err := r.loadOf(ctx, target)
		if err != nil {
			return err
		}
		if now != load {
			return fmt.Errorf("read users of %s: %w", target, ErrNotWarm)
		}
		sets = more
	}
}

// UsersOf returns the users of some targets, as their sets hold them now, in any order. The states are those of the
// targets a moment before. A target that became cold since has no users. All are read in one round trip.
func (r *Redis) UsersOf(ctx context.Context, targets []models.Target, states []TargetState) ([][]int64, error) {
	lists := make([][]*redis.StringSliceCmd, len(targets))
	err := r.read(ctx, func(p redis.Pipeliner) {
		for i, target := range targets {
			lists[i] = nil
			for _, key := range setKeys(r.likesKey(target), states[i].Load, setNumbers(states[i].Sets)) {
				lists[i] = append(lists[i], p.SMembers(ctx, key))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read users of %d targets: %w", len(targets), err)
	}
	users := make([][]int64, len(targets))
	for i, list := range lists {
		if users[i], err = usersIn(list); err != nil {
			return nil, fmt.Errorf("read users of %s: %w", targets[i], err)
		}
	}
	return users, nil
}

// usersOf returns the users of sets.
func (r *Redis) usersOf(ctx context.Context, keys []string) (ids []int64, err error) {
	lists := make([]*redis.StringSliceCmd, len(keys))
	err = r.read(ctx, func(p redis.Pipeliner) {
		for i, key := range keys {
			lists[i] = p.SMembers(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	return usersIn(lists)
}

// usersIn returns the users of sets that were read.
func usersIn(sets []*redis.StringSliceCmd) (ids []int64, err error) {
	for _, set := range sets {
		for _, member := range set.Val() {
			id, err := strconv.ParseInt(member, 10, 64)
			if err != nil {
				return nil, err
			}
			if id != 0 {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// Likers reports which of users like a warm target. The result lacks users whose set is lost. If the target is cold,
// Likers returns ErrNotWarm.
func (r *Redis) Likers(ctx context.Context, target models.Target, users []int64) (map[int64]bool, error) {
	if len(users) == 0 {
		return nil, nil
	}
	load, sets, err := r.loadOf(ctx, target)
	if err != nil {
		return nil, err
	}
	bySet := map[int][]any{}
	for _, user := range users {
		set := setOf(user, sets)
		if bySet[set] == nil {
			bySet[set] = []any{0}
		}
		bySet[set] = append(bySet[set], user)
	}
	replies := make(map[int]*redis.BoolSliceCmd, len(bySet))
	k := r.keys(target)
	err = r.read(ctx, func(p redis.Pipeliner) {
		for set, members := range bySet {
			replies[set] = p.SMIsMember(ctx, setKey(k.likes, load, set), members...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read users of %s: %w", target, err)
	}
	liked := make(map[int64]bool, len(users))
	for set, members := range bySet {
		in := replies[set].Val()
		if !in[0] {
			continue // it is lost
		}
		for i, user := range members[1:] {
			liked[user.(int64)] = in[i+1]
		}
	}
	return liked, nil
}
