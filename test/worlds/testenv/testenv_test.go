package testenv_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/worlds/testenv"
)

var _ testenv.T = (*testing.T)(nil)

// TestPlay: what a play has begun is ended in the opposite order, also when it fails in the middle, and each
// failure is returned.
func TestPlay(t *testing.T) {
	var said []string
	say := func(what string) func() { return func() { said = append(said, what) } }
	var log strings.Builder
	var dir string
	err := testenv.Play(t.Context(), &log, func(s testenv.T) {
		dir = s.TempDir()
		s.Cleanup(say("first"))
		s.Cleanup(func() { s.Fatal("no end") })
		s.Cleanup(func() {
			if s.Context().Err() == nil || !s.Failed() {
				t.Errorf("at the end: %v, failed %v", s.Context().Err(), s.Failed())
			}
		})
		s.Logf("it %s", "begins")
		s.Errorf("%d of two", 1)
		s.Fatalf("%s is fatal", "this")
		say("not reached")()
	})
	if want := "1 of two\nthis is fatal\nno end"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := os.Stat(dir); dir == "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory %q is left: %v", dir, err)
	}
	if !slices.Equal(said, []string{"first"}) || log.String() != "it begins\n" {
		t.Errorf("said %q, logged %q", said, &log)
	}
	if err := testenv.Play(t.Context(), io.Discard, func(testenv.T) {}); err != nil {
		t.Errorf("a play without a failure: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	err = testenv.Play(ctx, io.Discard, func(s testenv.T) {
		stop()
		<-s.Context().Done()
		s.Error("a wait has ended")
		if s.Failed() {
			t.Error("a play that was stopped has failed")
		}
	})
	if err == nil || err.Error() != "stopped" {
		t.Errorf("a play that was stopped: %v", err)
	}
}
