// Package rules tests what the compiler does not check, such as imports, that systemd accepts the units, the size of
// the binary, and that the documents match the code.
package rules

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	ImportPath, Name, Dir, Doc                  string
	GoFiles, TestGoFiles, XTestGoFiles, Imports []string
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

var listPackages = sync.OnceValues(func() (list []goPackage, err error) {
	// -e, because these tests do not report packages that fail to build.
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
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

// fromRoot returns the path of a file, by its name relative to the root of the checkout.
func fromRoot(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(root, path)
}

// readText returns the content of a file; its path is relative to the root of the checkout.
func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(fromRoot(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// matches returns the paths, relative to the root of the checkout, that match a pattern; at least one.
func matches(t *testing.T, pattern string) (paths []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing matches %s: %v", pattern, err)
	}
	for _, path := range found {
		paths = append(paths, strings.TrimPrefix(path, root+"/"))
	}
	return paths
}
