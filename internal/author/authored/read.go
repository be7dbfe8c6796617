package authored

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// maxTotal limits the total size of all files, in bytes.
const maxTotal = 64 << 20

// Read reads all MachineConfigs in files, and in directories: there it reads files that end in
// .yaml, .yml or .json, except hidden files and subdirectories. The report has the problems in all
// files, and names those that cannot be read. An error means that the context has ended, or that the
// files are too large together.
func Read(ctx context.Context, paths []string, stdin io.Reader, rules Rules) ([]*MachineConfig, problem.Report, error) {
	var all []*MachineConfig
	var report problem.Report
	total := 0
	if rules.Room == nil {
		rules.Room = NewRoom()
	}
	for _, path := range paths {
		for _, file := range filesOf(path, &report) {
			data, ok, err := input.File{What: "the MachineConfigs in", Path: file, Max: document.MaxSize, Stdin: stdin}.Reported(ctx, &report)
			if err != nil {
				return nil, nil, err
			}
			if !ok {
				continue
			}
			if total += len(data); total > maxTotal {
				return nil, nil, fault.New(fault.BadInput, "cannot read MachineConfigs: together they have more than %d bytes", maxTotal).
					WithHint("give fewer files; the MachineConfigs of one pool are enough")
			}
			found, problems := Decode(file, data, rules)
			all = append(all, found...)
			report = append(report, problems...)
		}
	}
	return all, append(report, sameNames(all)...), nil
}

// Files returns the files that Read reads for these paths, those of a directory sorted by name, and the
// problems of paths that cannot be read.
func Files(paths []string) (files []string, report problem.Report) {
	for _, path := range paths {
		files = append(files, filesOf(path, &report)...)
	}
	return files, report
}

// filesOf returns the files that Read reads for a path.
func filesOf(path string, report *problem.Report) []string {
	if path == input.Stdin {
		return []string{path}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		report.Add(input.Problem(path, err))
		return nil
	case !info.IsDir():
		return []string{path}
	}
	return inDirectory(path, report)
}

func inDirectory(dir string, report *problem.Report) (files []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		report.Add(input.Problem(dir, err))
		return nil
	}
	some := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			continue
		}
		// Follow links: Kubernetes mounts volumes as links.
		if info, err := os.Stat(path); err != nil {
			report.Add(input.Problem(path, err))
		} else if info.IsDir() {
			continue
		} else {
			files = append(files, path)
		}
		some = true
	}
	if !some {
		report.Add(input.Problem(dir, errors.New("the directory has no file .yaml, .yml or .json")))
	}
	return files
}
