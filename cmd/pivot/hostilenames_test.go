package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// TestNamesJustBelowTheLimit: an image with as many names as are allowed takes at most 150 MB of
// memory, whatever their form.
func TestNamesJustBelowTheLimit(t *testing.T) {
	importNames(t, map[string]namesOf{
		"files in directories":     {62_000, func(n int) string { return fmt.Sprintf("usr/%d/a", n) }, ""},
		"too long for a directory": {90_000, func(n int) string { return fmt.Sprintf("usr/%0250d", n) }, "a directory of 25"},
	})
}

// TestNamesJustBelowTheLimitWhole has the other forms. It is part of "make nightly".
func TestNamesJustBelowTheLimitWhole(t *testing.T) {
	importNames(t, map[string]namesOf{
		"directories in directories": {51, func(n int) string { return fmt.Sprintf("usr/%d/", n) + strings.Repeat("d/", 1600) + "f" }, ""},
		"two directories":            {235_000, func(n int) string { return fmt.Sprintf("usr/%d/%d", n%2, n) }, ""},
		"one directory":              {130_000, func(n int) string { return fmt.Sprintf("usr/%d", n) }, "a directory of 130001 names"},
		"long names":                 {53_000, func(n int) string { return fmt.Sprintf("usr/%0250d", n) }, ""},
	})
}

// namesOf are the names of an image's files.
type namesOf struct {
	number int
	name   func(n int) string
	want   string // the error; "" for none
}

// importNames imports an image with each of the names, within the limit of memory.
func importNames(t *testing.T, cases map[string]namesOf) {
	t.Helper()
	if testing.Short() {
		t.Skip("imports 500,000 names")
	}
	need.Ostree(t)
	for name, c := range cases {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir := inMemory(t)
			all := []oscontainer.Entry{oscontainer.File("usr/lib/modules/1/vmlinuz", "kernel"), oscontainer.File("usr/lib/modules/1/initramfs.img", "initramfs"), oscontainer.File("usr/lib/os-release", "ID=many\n")}
			for n := range c.number {
				all = append(all, oscontainer.File(c.name(n), ""))
			}
			options := []oscontainer.Option{oscontainer.WithWorkDir(dir)}
			for rest := all; len(rest) > 0; {
				n := min(len(all)/4+1, len(rest))
				options = append(options, oscontainer.WithDerived(rest[:n]...))
				rest = rest[n:]
			}
			img, err := oscontainer.Plain("1", options...)
			path, repo := filepath.Join(dir, "image"), filepath.Join(dir, "repo")
			if err == nil {
				err = oscontainer.WriteLayout(path, img)
			}
			if err == nil {
				err = ostreetree.Init(repo, "bare")
			}
			if err != nil {
				t.Fatal(err)
			}
			exit := 0
			if c.want != "" {
				exit = 65
			}
			script.Bounded(t, exit, c.want, "pivot", "image", "import", "oci:"+path, "--repo", repo)
		})
	}
}
