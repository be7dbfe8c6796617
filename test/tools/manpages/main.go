// Command manpages writes the manual pages as they are installed: those of man/, and one for each command of the
// programs. All have the version in the footer, in place of mdoc(7)'s system, and no system in the header. The date of
// a page is that of the page in man/, so it depends on nothing else.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/test/tools/manual"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// ofNoSystem removes BSD from the header, where groff up to 1.22 has it on each system. Other formatters
// ignore it.
const ofNoSystem = "\n.ds doc-volume-operating-system\n"

// write writes the pages of a directory into another one, which has nothing else afterwards.
func write(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: manpages SOURCE DIR VERSION")
	}
	source, dir, version := args[0], args[1], args[2]
	pages, err := read(source)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range pages {
		title, after, ok := strings.Cut(text, "\n.Os\n")
		before, title, alsoOK := strings.Cut(title, "\n.Dt ")
		if !ok || !alsoOK {
			return fmt.Errorf("%s has no lines .Dt and .Os", name)
		}
		text = before + ofNoSystem + ".Dt " + title + "\n.Os pivot " + version + "\n" + after
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// read returns the pages of a directory by name, with those that are made of them.
func read(source string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.[1-8]"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no pages in %s: %w", source, errors.Join(err, fs.ErrNotExist))
	}
	pages := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file)
		pages[name] = string(text)
		if !slices.Contains([]string{"pivot.8", "pivotctl.1", "pivot-agent.8", "pivot-fleet.8"}, name) {
			continue
		}
		of, err := manual.Pages(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, text := range of {
			pages[name] = text
		}
	}
	return pages, nil
}
