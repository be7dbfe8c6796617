package hostfiles_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// TestWatcher (P66): any change at a path is noticed, also when parent directories are created,
// removed or replaced, also by what cannot be entered. Changes elsewhere are not.
func TestWatcher(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := hostfiles.NewWatcher()
	must(err)
	defer func() { must(w.Close()) }()
	must(os.Mkdir(at("etc"), 0o755))
	must(os.WriteFile(at("etc/a"), nil, 0o644))
	paths := []string{"/etc/a", "/etc/d/e/f", "/etc/a/below"}
	must(w.Paths(root, paths))

	const never = time.Minute // an event takes milliseconds
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"written", func() error { return os.WriteFile(at("etc/a"), []byte("x"), 0o644) }},
		{"another mode", func() error { return os.Chmod(at("etc/a"), 0o600) }},
		{"another owner", func() error { return os.Lchown(at("etc/a"), os.Getuid(), os.Getgid()) }},
		{"replaced", func() error {
			return errors.Join(os.WriteFile(at("etc/new"), nil, 0o644), os.Rename(at("etc/new"), at("etc/a")))
		}},
		{"removed", func() error { return os.Remove(at("etc/a")) }},
		{"a link instead", func() error { return os.Symlink("b", at("etc/a")) }},
		{"a directory on the way", func() error { return os.MkdirAll(at("etc/d/e"), 0o755) }},
		{"a file below new directories", func() error { return os.WriteFile(at("etc/d/e/f"), nil, 0o644) }},
		{"a directory above is moved away", func() error { return os.Rename(at("etc/d"), at("etc/away")) }},
		{"another in its place", func() error { return os.MkdirAll(at("etc/d/e"), 0o755) }},
		{"a file in that", func() error { return os.WriteFile(at("etc/d/e/f"), nil, 0o644) }},
		{"all of it removed", func() error { return os.RemoveAll(at("etc/d")) }},
		{"a file, two levels above", func() error { return os.WriteFile(at("etc/d"), nil, 0o644) }},
		{"a link to itself instead", func() error { return errors.Join(os.Remove(at("etc/d")), os.Symlink("d", at("etc/d"))) }},
		{"a directory again", func() error { return errors.Join(os.Remove(at("etc/d")), os.Mkdir(at("etc/d"), 0o755)) }},
		{"a link to itself below", func() error { return os.Symlink("e", at("etc/d/e")) }},
		{"a FIFO below", func() error { return errors.Join(os.Remove(at("etc/d/e")), unix.Mkfifo(at("etc/d/e"), 0o600)) }},
		{"a directory below again", func() error { return errors.Join(os.Remove(at("etc/d/e")), os.Mkdir(at("etc/d/e"), 0o755)) }},
		{"a file in it", func() error { return os.WriteFile(at("etc/d/e/f"), nil, 0o644) }},
	} {
		start := time.Now()
		must(step.do())
		must(w.Wait(t.Context(), never))
		if time.Since(start) >= never {
			t.Errorf("%s: nothing was noticed", step.what)
		}
		must(w.Paths(root, paths))
	}

	must(w.Paths(root, []string{"/etc/" + hostfiles.AnyName}))
	must(os.Symlink("x", at("etc/new")))
	start := time.Now()
	must(w.Wait(t.Context(), never))
	if time.Since(start) >= never {
		t.Error("a name that was not known is not noticed")
	}
	must(w.Paths(root, paths))
	must(os.WriteFile(at("etc/other"), nil, 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.Wait(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another file is noticed: %v", err)
	}
	must(w.Wait(t.Context(), time.Millisecond)) // returns at the time limit
}
