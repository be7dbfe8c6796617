// Package rules holds the tests of what no compiler checks: which package may
// import which, who may exit, that the units verify, the size of the binary, and
// that the documents say what is so.
package rules

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

const (
	module = "machine-pivot"
	root   = "../.." // of the checkout
)

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath, Name, Dir string
	GoFiles, Imports      []string
}

// short is the import path within the module.
func (p goPackage) short() string { return short(p.ImportPath) }

// short is the name by which documents and tests know a package of the module: its
// path, without the folders that only keep packages apart.
func short(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	return strings.TrimPrefix(strings.TrimPrefix(path, "internal/"), "author/")
}

// underTest reports whether p is made for tests only.
func (p goPackage) underTest() bool { return strings.HasPrefix(p.short(), "test/") }

var listPackages = sync.OnceValues(func() ([]goPackage, error) {
	// -e: a package that does not build is not this test's business.
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,GoFiles,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
})

// packages are all packages of the module.
func packages(t *testing.T) []goPackage {
	t.Helper()
	list, err := listPackages()
	if err != nil {
		t.Fatalf("cannot list packages: %v", err)
	}
	return list
}

// run runs a command in the checkout and returns all it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
