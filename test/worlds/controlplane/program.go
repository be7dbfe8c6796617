package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"machine-pivot/test/tools/buildcache"
)

// Form says what of Kubernetes a program has.
type Form string

// The forms.
const (
	FormMini    Form = "mini"    // etcd, API server, disruption controller
	FormFull    Form = "full"    // FormMini, kube-controller-manager and kube-scheduler; a third more to compile
	FormKubelet Form = "kubelet" // only kubelet, for machines: a program of its own
	FormKubectl Form = "kubectl" // only kubectl, for commands of documents: a program of its own
)

// source returns the package of the program, relative to the module.
func (f Form) source() string {
	switch f {
	case FormKubelet, FormKubectl:
		return "./" + string(f)
	}
	return "."
}

// what describes the program.
func (f Form) what() string {
	switch f {
	case FormKubelet, FormKubectl:
		return string(f)
	}
	return "the control plane (" + string(f) + ")"
}

// NoModules is the error of a build for which not all Go modules can be had: there is no network, and
// they were never downloaded.
type NoModules struct{ Err error }

func (e NoModules) Error() string {
	return fmt.Sprintf("cannot get the Go modules of Kubernetes: %v", e.Err)
}

// Unwrap returns the failure of the go command.
func (e NoModules) Unwrap() error { return e.Err }

// keepPrograms is how many programs of each form the cache keeps.
const keepPrograms = 2

// Program returns the path of the binary of a form. It is built from test/controlplane, which takes
// eight minutes of processor time for the first form, unless the cache has it: log receives that.
// Another process that needs it at the same time waits.
func Program(ctx context.Context, form Form, log io.Writer) (path string, err error) {
	dir, err := buildcache.Dir("controlplane")
	if err != nil {
		return "", err
	}
	source, err := sourceDir(ctx)
	if err != nil {
		return "", err
	}
	key, err := buildKey(ctx, source)
	if err != nil {
		return "", err
	}
	c := buildcache.Cache{Dir: dir, Log: log}
	unlock, err := c.Lock(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	entry, err := c.Entry(string(form)+"-"+key, form.what(), func(dir string) error {
		return compile(ctx, source, form, filepath.Join(dir, binary))
	})
	if err != nil {
		return "", err
	}
	_, err = c.Prune(string(form)+"-", keepPrograms)
	return filepath.Join(entry, binary), err
}

// binary is the name of the program in its entry of the cache.
const binary = "controlplane"

// sourceDir returns the directory of the module test/controlplane in this checkout.
func sourceDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the checkout: %w", err)
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "test/controlplane"), nil
}

// buildKey returns a hash of what the program is built from: the module's files, among them the sums of
// all modules that it needs, and the version of Go.
func buildKey(ctx context.Context, source string) (string, error) {
	sum := sha256.New()
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the version of Go: %w", err)
	}
	sum.Write(version)
	files := os.DirFS(source)
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}

// compile builds the program. It uses the flags and the environment that the key stands for, and not
// the caller's: the main module's tags and vendor directory mean nothing to this module.
func compile(ctx context.Context, source string, form Form, to string) error {
	goCommand := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	// This downloads what is needed, a third of what "go mod download" would.
	if err := goCommand("list", "-deps", "-tags", string(form), form.source()); err != nil {
		return NoModules{err}
	}
	flags, err := versionFlags(source)
	if err != nil {
		return err
	}
	return goCommand("build", "-trimpath", "-buildvcs=false", "-tags", string(form), "-ldflags", flags, "-o", to, form.source())
}

// versionFlags returns the linker's flags with which the components know their version: that of the
// module k8s.io/kubernetes. Clients decide by it what a server can do.
func versionFlags(source string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("cannot read the version of Kubernetes: %w", err)
	}
	m := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)$`).FindSubmatch(text)
	if m == nil {
		return "", errors.New("cannot read the version of Kubernetes: go.mod does not require a release of k8s.io/kubernetes")
	}
	const at = " -X k8s.io/component-base/version."
	return fmt.Sprintf("-s -w%sgitVersion=%s%sgitMajor=%s%sgitMinor=%s", at, m[1], at, m[2], at, m[3]), nil
}
