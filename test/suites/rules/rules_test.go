// Package rules tests what the compiler does not check: which packages may import which, that only
// main exits, that systemd accepts the units, the size of the binary, and that the documents match
// the code.
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
	root   = "../../.." // the root of the checkout
)

// goPackage is a package as printed by go list.
type goPackage struct {
	ImportPath, Name, Dir string
	GoFiles, Imports      []string
}

// short returns the short name of the package.
func (p goPackage) short() string { return short(p.ImportPath) }

// short returns the name that documents and tests use for a package of the module: its path within
// the module, without the prefixes internal/, author/ and day2/.
func short(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for _, prefix := range []string{"internal/", "author/", "day2/"} {
		path = strings.TrimPrefix(path, prefix)
	}
	return path
}

// underTest reports whether p is below test/, and so only for tests.
func (p goPackage) underTest() bool { return strings.HasPrefix(p.short(), "test/") }

var listPackages = sync.OnceValues(func() ([]goPackage, error) {
	// -e, because these tests do not report packages that fail to build.
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

// packages returns all packages of the module.
func packages(t *testing.T) []goPackage {
	t.Helper()
	list, err := listPackages()
	if err != nil {
		t.Fatalf("cannot list packages: %v", err)
	}
	return list
}

// run runs a command in the root of the checkout and returns its output.
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
