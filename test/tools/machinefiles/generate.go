package machinefiles

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Generate writes count files with about total bytes below dir, for Pick: the same names, sizes and bytes for a seed,
// on each machine. Every other directory has larger files than the one before, up to three times the mean, and gzip
// takes about half of all bytes. So Pick can choose from twice as many as it should pick.
func Generate(dir string, count int, total int64, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 1))
	mean := int(total) / count
	for i := range count {
		path := filepath.Join(dir, fmt.Sprintf("%02d/file-%05d", i/runLength, i))
		size := 1 + random.IntN(mean)
		if i/runLength%2 == 1 {
			size *= 3
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content(random, size), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// content returns size bytes, by turns random and repeated from before.
func content(random *rand.Rand, size int) []byte {
	text := make([]byte, 0, size)
	for len(text) < size {
		n := min(1+random.IntN(64), size-len(text))
		if from := len(text) - n; from > 0 && random.IntN(2) == 0 {
			at := random.IntN(from)
			text = append(text, text[at:at+n]...)
			continue
		}
		for range n {
			text = append(text, byte(random.Uint32()))
		}
	}
	return text
}
