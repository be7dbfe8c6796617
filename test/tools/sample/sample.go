// Package sample selects a part of a test's cases for short runs.
package sample

import (
	"hash/fnv"
	"testing"
)

// Short skips a case of a table in a short run (go test -short), unless it is in the sample: about
// one of n cases, always the same ones.
func Short(t testing.TB, n uint32) {
	t.Helper()
	if testing.Short() && !Picks(t.Name(), n) {
		t.Skip("one of the cases that a short run leaves out")
	}
}

// World skips a test, in a short run, that builds a world which takes long, such as a host with a repository and
// deployments. About a quarter of them run. The function that builds the world calls it, so this holds for each test
// that needs such a world.
func World(t testing.TB) {
	t.Helper()
	const oneOf = 4
	if testing.Short() && !Picks(t.Name(), oneOf) {
		t.Skip("one of the tests of a whole world that a short run leaves out")
	}
}

// Rounds returns how many random inputs a test tries: n, or a quarter of them in a short run.
func Rounds(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// Step returns the step between the effects at which a test kills a process: 1, or n in a short
// run. n should have no small divisors, so that the sample covers everything that such a test
// varies with the number.
func Step(n int) int {
	if testing.Short() {
		return n
	}
	return 1
}

// Picks reports whether a name is in a sample of about one in n.
func Picks(name string, n uint32) bool {
	h := fnv.New32a()
	h.Write([]byte(name)) // never fails
	return h.Sum32()%n == 0
}
