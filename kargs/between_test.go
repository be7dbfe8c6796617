package kargs_test

import (
	"math/rand/v2"
	"testing"

	"machine-pivot/kargs"
)

func TestBetween(t *testing.T) {
	for _, c := range []struct{ name, from, to, old, new string }{
		{"equal", "rw a=1", "rw a=1", "", ""},
		{"other groups stay", "rw a=1 b=1", "b=1 a=2 rw", "a=1", "a=2"},
		{"order counts", "console=ttyS0 rw console=tty0", "console=tty0 console=ttyS0 rw", "", "console=tty0 console=ttyS0"},
		{"an instance more", "loglevel=3", "loglevel=7 loglevel=3", "", "loglevel=7 loglevel=3"},
		{"pools", "hugepagesz=1G hugepages=4 a=1", "hugepagesz=2M hugepages=4 a=1 hugepagesz=1G hugepages=4", "", "hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=4"},
		{"a pool goes", "hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=4", "hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4", "hugepagesz=1G hugepages=4"},
		{"what belongs to the deployment", "root=/dev/a ostree=/x init=/a rw", "root=/dev/b ostree=/y rw", "", ""},
		{"another spelling", "log-buf-len=1M", "log_buf_len=1M", "", ""},
		{"not after the separator", "rw -- a=1", "rw -- a=2", "", ""},
	} {
		change := kargs.Between(kargs.Split(c.from), kargs.Split(c.to))
		if change.Old.String() != c.old || change.New.String() != c.new || len(change.Delete) > 0 {
			t.Errorf("%s: old %q, new %q, delete %q; want %q, %q", c.name, change.Old, change.New, change.Delete, c.old, c.new)
		}
		unchanged(t, change, kargs.Split(c.from), kargs.Split(c.to))
	}
}

// unchanged checks that a change between two lines changes nothing of the second one, and that it takes effect on
// the first one.
func unchanged(t *testing.T, change kargs.Change, from, to kargs.Line) {
	t.Helper()
	if r, err := change.Apply(to); err != nil || r.Changed {
		t.Fatalf("from %q to %q: %+v changes the second to %q (%v)", from, to, change, r.Final, err)
	}
	r, err := change.Apply(from)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := change.Apply(r.Final); err != nil || again.Changed {
		t.Fatalf("from %q to %q: %+v makes it %q, and again %q (%v)", from, to, change, r.Final, again.Final, err)
	}
}

// TestBetweenAnyLines: whatever the lines are.
func TestBetweenAnyLines(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	line := func() kargs.Line {
		b := make([]byte, random.IntN(10))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return lineFrom(b)
	}
	for range 5000 {
		from, to := line(), line()
		unchanged(t, kargs.Between(from, to), from, to)
	}
}

// FuzzBetween is TestBetweenAnyLines for what the fuzzer finds.
func FuzzBetween(f *testing.F) {
	f.Add("root=/dev/vda rw console=tty0 console=ttyS0", "console=ttyS0 rw")
	f.Add("hugepagesz=2M hugepages=4 hugepagesz=2M hugepages=4 -- x", `a="b c" hugepages=4`)
	f.Fuzz(func(t *testing.T, from, to string) {
		unchanged(t, kargs.Between(kargs.Split(from), kargs.Split(to)), kargs.Split(from), kargs.Split(to))
	})
}
