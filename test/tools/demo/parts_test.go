package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestParts checks that the parts of a demonstration are added up in the order of their beginning.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newParts("installing=12,compiling=3")
		if err != nil {
			t.Fatal(err)
		}
		p.next("guest")
		time.Sleep(20 * time.Second)
		for range 2 {
			p.next("boots")
			time.Sleep(5 * time.Second)
			p.next("disks")
			time.Sleep(time.Second)
		}
		const want = "47 s in all: installing 12 s, compiling 3 s, guest 20 s, boots 10 s, disks 2 s"
		if got := p.String(); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	})
	if _, err := newParts("installing"); err == nil {
		t.Error("a part without a duration is accepted")
	}
}

// TestProgress checks that something that takes long says so, with the last line, until it ends.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := startProgress(&out, "building programs")
		time.Sleep(progressInterval + time.Second)
		if _, err := p.Write([]byte("built programs\nbuilding the guest\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(progressInterval)
		p.stop()
		time.Sleep(2 * progressInterval)
		want := "  building programs: 10 s so far\nbuilt programs\nbuilding the guest\n  building the guest: 9 s so far\n"
		if got := out.String(); got != want {
			t.Errorf("%q\nwant\n%q", got, want)
		}
	})
}
