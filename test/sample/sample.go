// Package sample takes a sample of a table's cases where a test is to be fast.
package sample

import (
	"hash/fnv"
	"testing"
)

// Short has a short run (go test -short) skip a case of a table that another of its cases is
// like: about one of n is run, the same ones each time. Other runs have all of them.
func Short(t testing.TB, n uint32) {
	t.Helper()
	if testing.Short() && !Picks(t.Name(), n) {
		t.Skip("one of the cases that a short run leaves out")
	}
}

// Rounds is how many random inputs a test tries: n, or a fourth of them in a short run.
func Rounds(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// Step is how far a test that kills a process at each of its effects goes on to the next one: 1, or
// n in a short run. An n without small divisors meets what such a test varies with the number.
func Step(n int) int {
	if testing.Short() {
		return n
	}
	return 1
}

// Picks reports whether a name is one of about every n-th.
func Picks(name string, n uint32) bool {
	h := fnv.New32a()
	h.Write([]byte(name)) // never fails
	return h.Sum32()%n == 0
}
