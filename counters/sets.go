package counters

import "strconv"

// The users of a target are spread over sets of some hundred. Redis keeps a set of up to 512 integers as a sorted
// array, which takes 4 to 5 bytes a user where a hash table takes 42 to 65. The sets grow by linear hashing: the gate
// splits one at a time in four, in their order, so a call moves no more than the users of a few sets. Splits in two
// would move each user thrice as often.
//
// A level has base sets, and base is a power of 4. Set n is split into n, n+base, n+2·base and n+3·base. The hash of a
// target has the lowest number above those of all sets: 1, 4, 13 to 16, 49 to 64, 193 to 256, and so on.

// levelOf returns the number of sets with which the present level began, and how many of them are split.
func levelOf(sets int) (base, split int) {
	base = 1
	for base*4 < sets {
		base *= 4
	}
	return base, max(0, sets-3*base)
}

// setOf returns the number of the set that holds a user. The scripts compute the same: in float64, in which a user id
// up to 2^53 and all products are exact.
func setOf(user int64, sets int) int {
	base, split := levelOf(sets)
	at := int(user % (1<<31 - 1) * 1296131 >> 16 % int64(4*base))
	if at%base >= split {
		at %= base
	}
	return at
}

// setsFor returns the lowest number above those of the sets into which the gate would have split this number of users.
func setsFor(users int) int {
	base := 1
	for users > 420*base {
		base *= 4
	}
	if split := (users - 300*base + 119) / 120; split > 0 {
		return 3*base + split
	}
	return base
}

// setNumbers returns the numbers of the sets, in ascending order.
func setNumbers(sets int) []int {
	base, split := levelOf(sets)
	var numbers []int
	for n := range sets {
		if n < base || n%base < split {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// setKey returns the key of a set of a load.
func setKey(likes, load string, set int) string { return likes + ":" + load + ":" + strconv.Itoa(set) }

// setKeys returns the keys of sets of a load.
func setKeys(likes, load string, sets []int) []string {
	keys := make([]string, len(sets))
	for i, set := range sets {
		keys[i] = setKey(likes, load, set)
	}
	return keys
}

// part is a set with its users.
type part struct {
	set   int
	users []int64
}

// spread returns the sets with their users.
func spread(users []int64, sets int) []part {
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
	var parts []part
	for _, set := range setNumbers(sets) {
		parts = append(parts, part{set, lists[set]})
	}
	return parts
}
