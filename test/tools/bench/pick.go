package main

import (
	"cmp"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// source is a file of this machine, used as a source of content for the tree.
type source struct {
	path  string
	size  int64
	again int // how often it was picked before; each time another byte is changed
}

// runLength is the number of neighbouring files picked together, so that directories have about as
// many files as on the machine.
const runLength = 32

// pick picks about count files with about total bytes from the machine's own files, sorted by path.
// If the machine has too few, files are picked again, to be copied with a changed byte.
func pick(dirs []string, count int, total int64, seed uint64) []source {
	random := rand.New(rand.NewPCG(seed, 0))
	mean := total / int64(count)
	var small, large supply
	for run := range slices.Chunk(machineFiles(dirs, total/100), runLength) {
		if bytesOf(run) <= mean*int64(len(run)) {
			small.runs = append(small.runs, run)
		} else {
			large.runs = append(large.runs, run)
		}
	}
	for _, s := range []*supply{&small, &large} {
		random.Shuffle(len(s.runs), func(i, j int) { s.runs[i], s.runs[j] = s.runs[j], s.runs[i] })
	}
	var picked []source
	var sum int64
	for len(picked) < count {
		from := &large
		if sum >= mean*int64(len(picked)) || len(large.runs) == 0 {
			from = &small
		}
		if len(from.runs) == 0 {
			break
		}
		run := from.next()
		picked = append(picked, run...)
		sum += bytesOf(run)
	}
	slices.SortFunc(picked, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.again, b.again))
	})
	return picked
}

func bytesOf(files []source) (sum int64) {
	for _, f := range files {
		sum += f.size
	}
	return sum
}

// supply hands out runs of files, starting over after the last one.
type supply struct {
	runs  [][]source
	taken int
}

func (s *supply) next() []source {
	run := slices.Clone(s.runs[s.taken%len(s.runs)])
	for n := range run {
		run[n].again = s.taken / len(s.runs)
	}
	s.taken++
	return run
}

// machineFiles lists the regular files below dirs with a size of 1 to limit bytes. Unreadable files
// and directories are skipped.
func machineFiles(dirs []string, limit int64) []source {
	var files []source
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if info, err := d.Info(); err == nil && info.Size() > 0 && info.Size() <= limit {
				files = append(files, source{path: path, size: info.Size()})
			}
			return nil
		})
	}
	return files
}

// copyTo copies the file. change is added to its middle byte.
func (s source) copyTo(path string, change byte) error {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		data[len(data)/2] += change
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
