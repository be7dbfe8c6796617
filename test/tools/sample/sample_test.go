package sample_test

import (
	"fmt"
	"testing"

	"machine-pivot/test/tools/sample"
)

// TestPicks checks that about one name in n is picked, always the same ones.
func TestPicks(t *testing.T) {
	const names = 1000
	for n := uint32(1); n <= 10; n++ {
		picked := uint32(0)
		for i := range names {
			name := fmt.Sprintf("TestX/case %d", i)
			if again := sample.Picks(name, n); again != sample.Picks(name, n) {
				t.Fatalf("%s is picked and is not", name)
			}
			if sample.Picks(name, n) {
				picked++
			}
		}
		if want := names / n; picked < want*3/4 || picked > want*5/4 {
			t.Errorf("every %d. of %d names: %d, want about %d", n, names, picked, want)
		}
	}
}
