// Package pool renders files of MachineConfigs to the MachineConfig of each role: it reads files
// and directories, inlines remote resources, merges, checks the result and names it.
package pool

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// maxTotal limits the total size of all files, in bytes.
const maxTotal = 64 << 20

// Stdin is the path of the standard input.
const Stdin = "-"

// Read reads all MachineConfigs in files, and in directories: there it reads files that end in
// .yaml, .yml or .json, except hidden files and subdirectories. The report has the problems in all
// files. An error means that a file cannot be read.
func Read(paths []string, stdin io.Reader, rules authored.Rules) ([]*authored.MachineConfig, problem.Report, error) {
	files, err := Files(paths)
	if err != nil {
		return nil, nil, err
	}
	var all []*authored.MachineConfig
	var report problem.Report
	total := 0
	if rules.Room == nil {
		rules.Room = authored.NewRoom()
	}
	for _, file := range files {
		data, err := ReadFile(file, stdin)
		if err != nil {
			return nil, nil, err
		}
		if total += len(data); total > maxTotal {
			return nil, nil, fault.New(fault.BadInput, "cannot read MachineConfigs: together they have more than %d bytes", maxTotal)
		}
		found, problems := authored.Decode(file, data, rules)
		all = append(all, found...)
		report = append(report, problems...)
	}
	return all, append(report, authored.SameNames(all)...), nil
}

// Files returns the files that Read reads for these paths, those of a directory sorted by name.
func Files(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		if path == Stdin {
			files = append(files, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fault.New(fault.BadInput, "cannot read MachineConfigs: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		inside, err := inDirectory(path)
		if err != nil {
			return nil, err
		}
		files = append(files, inside...)
	}
	return files, nil
}

func inDirectory(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read MachineConfigs: %w", err)
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			continue
		}
		// Follow links: Kubernetes mounts volumes as links.
		if info, err := os.Stat(path); err != nil {
			return nil, fault.New(fault.BadInput, "cannot read MachineConfigs: %w", err)
		} else if info.IsDir() {
			continue
		}
		files = append(files, path)
	}
	if len(files) == 0 {
		return nil, fault.New(fault.BadInput, "cannot read MachineConfigs: the directory %s has no file .yaml, .yml or .json", dir)
	}
	return files, nil
}

// ReadFile reads a file. It stops after document.MaxSize+1 bytes, which is enough to know that the
// file is too large.
func ReadFile(path string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if path != Stdin {
		f, err := openRegular(path)
		if err != nil {
			return nil, fault.New(fault.BadInput, "cannot read: %w", err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, document.MaxSize+1))
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read: %w", err)
	}
	return data, nil
}

// openRegular opens a file that cannot block the reader. Named pipes are allowed, because the user
// names them on purpose, as with the shell's <(command).
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Type(); mode != 0 && mode != fs.ModeNamedPipe {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrInvalid}
	}
	return os.Open(path)
}
