package e2e_test

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// TestTogether checks that each case runs once, and no more cases at a time than there are
// processors.
func TestTogether(t *testing.T) {
	var mu sync.Mutex
	var begun []int
	running, most := 0, 0
	var cases []bootCase
	for i := range 4 * runtime.NumCPU() {
		cases = append(cases, bootCase{strconv.Itoa(i), func(*testing.T) {
			mu.Lock()
			begun = append(begun, i)
			running++
			most = max(most, running)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			running--
			mu.Unlock()
		}})
	}
	together(t, cases)
	if most > runtime.NumCPU() || running != 0 {
		t.Errorf("%d cases at a time, %d still run", most, running)
	}
	slices.Sort(begun)
	if len(begun) != len(cases) || len(slices.Compact(begun)) != len(cases) {
		t.Errorf("begun %v", begun)
	}
}
