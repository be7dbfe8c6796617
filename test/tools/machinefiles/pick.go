// Package machinefiles picks files of this machine, as realistic content for the images of benchmarks, and
// generates such files for tests, which are then the same on each machine.
package machinefiles

import (
	"cmp"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// File is a file of this machine.
type File struct {
	Path  string
	Name  string // relative to the parent of the directory that it was picked from
	Size  int64
	Again int // how often it was picked before; each time another byte should be changed
}

// runLength is the number of neighbouring files picked together, so that directories have about as
// many files as on the machine.
const runLength = 32

// Pick picks about count files with about total bytes from the machine's own files, sorted by path.
// If the machine has too few, files are picked again, to be copied with a changed byte.
func Pick(dirs []string, count int, total int64, seed uint64) []File {
	random := rand.New(rand.NewPCG(seed, 0))
	mean := total / int64(count)
	var small, large supply
	for run := range slices.Chunk(machineFiles(dirs, total/100), runLength) {
		if Bytes(run) <= mean*int64(len(run)) {
			small.runs = append(small.runs, run)
		} else {
			large.runs = append(large.runs, run)
		}
	}
	for _, s := range []*supply{&small, &large} {
		random.Shuffle(len(s.runs), func(i, j int) { s.runs[i], s.runs[j] = s.runs[j], s.runs[i] })
	}
	var picked []File
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
		sum += Bytes(run)
	}
	slices.SortFunc(picked, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Again, b.Again))
	})
	return picked
}

// Bytes returns the size of all files together.
func Bytes(files []File) (sum int64) {
	for _, f := range files {
		sum += f.Size
	}
	return sum
}

// supply hands out runs of files, starting over after the last one.
type supply struct {
	runs  [][]File
	taken int
}

func (s *supply) next() []File {
	run := slices.Clone(s.runs[s.taken%len(s.runs)])
	for n := range run {
		run[n].Again = s.taken / len(s.runs)
	}
	s.taken++
	return run
}

// machineFiles lists the regular files below dirs with a size of 1 to limit bytes. Unreadable files
// and directories are skipped.
func machineFiles(dirs []string, limit int64) []File {
	var files []File
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if info, err := d.Info(); err == nil && info.Size() > 0 && info.Size() <= limit {
				name, _ := filepath.Rel(filepath.Dir(dir), path) // path is below dir
				files = append(files, File{Path: path, Name: name, Size: info.Size()})
			}
			return nil
		})
	}
	return files
}

// CopyTo copies the file. change is added to its middle byte.
func (f File) CopyTo(path string, change byte) error {
	data, err := os.ReadFile(f.Path)
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

// Copy copies a file, with its mode.
func Copy(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// WithLibraries returns the file of a program and those of its libraries, by ldd.
func WithLibraries(program string) ([]string, error) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the libraries of %s: %w", program, err)
	}
	all := []string{program}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			all = append(all, word)
		}
	}
	return all, nil
}
