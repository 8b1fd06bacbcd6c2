package counters

import (
	"math"
	"slices"
	"strconv"
)

// The users of a target are spread over sets of some hundred. Redis keeps a set of up to 512 integers as a sorted
// array, which takes 4 to 5 bytes a user where a hash table takes 42 to 65. The sets grow by linear hashing: the gate
// splits one at a time, in their order, so a call moves no more than the users of a few sets.

// setOf returns the set that holds a user if a target has this number of sets. The scripts compute the same: in
// float64, in which a user id up to 2^53 and all products are exact, and with the modulo of Lua.
func setOf(user int64, sets int) int {
	half := 1
	for half*2 <= sets {
		half *= 2
	}
	mod := func(a, b float64) float64 { return a - math.Floor(a/b)*b }
	at := int(mod(math.Floor(mod(float64(user), 1<<31-1)*1296131/65536), float64(2*half)))
	if at >= sets {
		at -= half
	}
	return at
}

// setsFor returns the number of sets into which the gate would have split this number of users.
func setsFor(users int) int {
	half := 1
	for users > 420*half {
		half *= 2
	}
	return half + max(0, users-300*half+119)/120
}

// setKey returns the key of a set of a load.
func setKey(likes, load string, set int) string { return likes + ":" + load + ":" + strconv.Itoa(set) }

// spread returns the users of each set, in ascending order, which Redis adds fastest.
func spread(users []int64, sets int) [][]int64 {
	if sets == 1 {
		return [][]int64{users}
	}
	sizes := make([]int, sets)
	for _, user := range users {
		sizes[setOf(user, sets)]++
	}
	lists := make([][]int64, sets)
	for i, size := range sizes {
		lists[i] = make([]int64, 0, size)
	}
	for _, user := range users {
		i := setOf(user, sets)
		lists[i] = append(lists[i], user)
	}
	for _, list := range lists {
		slices.Sort(list)
	}
	return lists
}
