package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// runner runs tests with a changed file.
type runner struct {
	out    io.Writer
	dir    string                   // for the changed file and the overlay
	limits map[string]time.Duration // how long the tests of a package may take
}

// try tries mutants of a package until enough were judged, and prints what became of them.
func (r *runner) try(pkg string, judges []string, all []mutant, number int) error {
	count := map[string]int{}
	for _, m := range all {
		if count["killed"]+count["survived"]+count["never reached"] == number {
			break
		}
		became, by, err := r.fate(m, judges)
		if err != nil {
			return err
		}
		count[became]++
		if became != "not built" {
			fmt.Fprintf(r.out, "%-13s %s:%d %s%s\n", became, m.file, m.line, m.kind, by)
		}
	}
	fmt.Fprintf(r.out, "%s: %d killed, %d survived, %d never reached\n", pkg, count["killed"], count["survived"], count["never reached"])
	return nil
}

// fate says what became of a mutant, and by which tests. If these do not notice a program that ends at its place
// either, they never reach it.
func (r *runner) fate(m mutant, judges []string) (became, by string, err error) {
	for _, probe := range []bool{false, true} {
		edits := m.edits
		if probe {
			edits = []edit{m.probe}
		}
		if err := r.change(m.file, edits); err != nil {
			return "", "", err
		}
		for _, pkg := range judges {
			switch failed, built, err := r.judge(pkg); {
			case err != nil:
				return "", "", err
			case !built && !probe:
				return "not built", "", nil
			case failed && !probe:
				return "killed", ", by " + pkg, nil
			case failed:
				return "survived", "", nil
			}
		}
	}
	return "never reached", "", nil
}

// change makes a file have edits in all later runs, also for the programs that tests build.
func (r *runner) change(file string, edits []edit) error {
	text, err := os.ReadFile(file)
	absolute, errAbs := filepath.Abs(file)
	changed, overlay := filepath.Join(r.dir, "changed.go"), filepath.Join(r.dir, "overlay.json")
	replaced, errJSON := json.Marshal(map[string]map[string]string{"Replace": {absolute: changed}})
	if err := errors.Join(err, errAbs, errJSON); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(changed, []byte(apply(string(text), edits...)), 0o644), os.WriteFile(overlay, replaced, 0o644))
}

// judge runs the tests of a package with the changed file. Tests that hang have noticed it.
func (r *runner) judge(pkg string) (failed, built bool, err error) {
	if r.limits[pkg] == 0 {
		start := time.Now()
		if out, err := test(pkg, time.Hour); err != nil {
			return false, false, fmt.Errorf("cannot judge by the tests of %s, which fail without a change: %w\n%s", pkg, err, out)
		}
		r.limits[pkg] = 4*time.Since(start) + time.Minute // for a host that is busier
	}
	out, err := test(pkg, r.limits[pkg], "-overlay="+filepath.Join(r.dir, "overlay.json"))
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return true, !strings.Contains(out, "[build failed]"), nil
	}
	return false, true, err
}

func test(pkg string, limit time.Duration, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Hour) // go test ends a test at the limit itself
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-short", "-vet=off", "-count=1", "-failfast", "-timeout", limit.String(), pkg)
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.Join(append(flags, os.Getenv("GOFLAGS")), " "))
	cmd.WaitDelay = time.Minute // for programs that a test has left
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir string
	GoFiles, Deps   []string
}

func list(options ...string) (all []listed, err error) {
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Deps"}, options...)...).Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil && d.More(); {
		var l listed
		err = d.Decode(&l)
		all = append(all, l)
	}
	return all, err
}
