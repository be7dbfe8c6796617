// Command size prints the product's lines of Go by room, with the limits of docs/dev/size.md, and how many packages and
// levels of imports there are. It fails if a room has more lines than its limit.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := report(".", os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// room is a row of the table: folders with what is below them, and how many lines they may have together.
type room struct {
	name    string
	folders []string
	most    int
}

// table is the document with the limits.
const table = "docs/dev/size.md"

// mostLevels limits the levels of imports. A change adds one mostly by accident: a low package imports a high one for a
// small thing that belongs below both.
const mostLevels = 10

func report(root string, to io.Writer) error {
	text, err := os.ReadFile(filepath.Join(root, table))
	if err != nil {
		return err
	}
	rooms, err := parse(string(text))
	if err != nil {
		return err
	}
	lines, err := count(root)
	if err != nil {
		return err
	}
	var wrong []string
	sums := map[string]int{}
	all := 0
	for folder, n := range lines {
		all += n
		i := owner(rooms, folder)
		if i < 0 {
			wrong = append(wrong, folder+" is in no room")
			continue
		}
		sums[rooms[i].name] += n
	}
	for _, r := range rooms {
		fmt.Fprintf(to, "%-40s %6d of %6d lines\n", r.name, sums[r.name], r.most)
		if sums[r.name] > r.most {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines, and %d are allowed: remove some, or raise the limit in %s and say why", r.name, sums[r.name], r.most, table))
		}
	}
	packages, levels, err := imports(root)
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "%-40s %6d lines, %d packages, %d levels of imports\n", "all", all, packages, levels)
	if levels > mostLevels {
		wrong = append(wrong, fmt.Sprintf("imports have %d levels, and %d are allowed: move what a low package needs of a high one", levels, mostLevels))
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("the product is larger than it may be:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// parse reads the rows of the table: room, folders in backquotes, limit, reason.
func parse(text string) (rooms []room, err error) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		r := room{name: strings.TrimSpace(cells[0])}
		for i, part := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				r.folders = append(r.folders, part)
			}
		}
		if r.most, err = strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(cells[2]), ",", "")); err != nil {
			return nil, fmt.Errorf("cannot read the limit of %s: %w", r.name, err)
		}
		rooms = append(rooms, r)
	}
	if len(rooms) == 0 {
		return nil, fmt.Errorf("%s has no rooms", table)
	}
	return rooms, nil
}

// owner returns the room of a folder: the one with the longest folder that has it; -1 if there is none.
func owner(rooms []room, folder string) int {
	best, longest := -1, 0
	for i, r := range rooms {
		for _, f := range r.folders {
			if (folder == f || strings.HasPrefix(folder, f+"/")) && len(f) > longest {
				best, longest = i, len(f)
			}
		}
	}
	return best
}

// count returns the lines of the product's Go files, by folder: without tests, what only tests use, and test data.
func count(root string) (map[string]int, error) {
	lines := map[string]int{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, _ := filepath.Rel(root, name)
		if d.IsDir() && (at == "test" || d.Name() == "testdata" || at != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(at, ".go") || strings.HasSuffix(at, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		lines[path.Dir(filepath.ToSlash(at))] += bytes.Count(text, []byte("\n"))
		return err
	})
	return lines, err
}

// imports returns the number of packages of the product, and the length of the longest chain of imports.
func imports(root string) (packages, levels int, err error) {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, err
	}
	of := map[string][]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); !strings.Contains(fields[0]+"/", "/test/") {
			of[fields[0]] = fields[1:]
		}
	}
	depth := map[string]int{}
	var look func(name string) int
	look = func(name string) int {
		imported, ours := of[name]
		if !ours {
			return 0
		}
		if depth[name] == 0 {
			for _, next := range imported {
				depth[name] = max(depth[name], look(next))
			}
			depth[name]++
		}
		return depth[name]
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		levels = max(levels, look(name))
	}
	return len(of), levels, nil
}
