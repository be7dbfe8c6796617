package kargs_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"machine-pivot/kargs"
)

// vocabulary has arguments of each rule: flags and values, one key in several spellings, keys of
// which each instance counts, and pools of huge pages.
var vocabulary = []string{
	"nosmt", "quiet", "a=1", "a=2", "a_b=1", "a-b=1", "rw",
	"console=tty0", "console=ttyS0", "ip=eth0:dhcp", "ip=eth1:dhcp", "rd.multipath=default",
	"hugepages=4", "hugepages=6", "hugepagesz=2M", "hugepagesz=1G", "default_hugepagesz=1G",
	"crashkernel=1G,high", "crashkernel=2G,high", "crashkernel=64M,low", "root=UUID=x", "root=/dev/mapper/y",
}

// lineFrom returns a line of words of the vocabulary.
func lineFrom(bytes []byte) kargs.Line {
	var line kargs.Line
	for _, b := range bytes[:min(len(bytes), 16)] {
		line = append(line, vocabulary[int(b)%len(vocabulary)])
	}
	return line
}

// chain is a machine that changes from one configuration to the next.
type chain struct {
	t     *testing.T
	line  kargs.Line
	old   kargs.Line
	image *kargs.ImageChange
}

// to applies the next configuration, and checks what holds for every line and configuration.
func (c *chain) to(next kargs.Line) {
	c.t.Helper()
	change := kargs.Change{Old: c.old, New: next, Image: c.image, Literal: true}
	r, err := change.Apply(c.line)
	if err != nil {
		c.t.Fatal(err)
	}
	describe := func(what string, args ...any) {
		c.t.Errorf("%q: from %q to %q with the image's %+v becomes %q: "+what, append([]any{c.line, c.old, next, c.image, r.Final}, args...)...)
	}
	// What verifies the next boot finds no difference, and neither does the next run.
	for _, same := range []kargs.Change{change, {New: next, Literal: true}} {
		if again, err := same.Apply(r.Final); err != nil || again.Changed || !again.Final.Equal(r.Final) {
			describe("a second run makes it %q (%v)", again.Final, err)
		}
	}
	for _, key := range []string{"console=", "ip=", "a=", "root="} {
		have, want := byRule(r.Final, key), slices.Compact(byRule(next, key))
		if !isSubsequence(have, want) {
			describe("%s are not in the order %q", key, want)
		}
	}
	if have, want := byRule(r.Final, "console="), byRule(next, "console="); len(want) > 0 && have[len(have)-1] != want[len(want)-1] {
		describe("/dev/console is %s", have[len(have)-1])
	}
	for _, arg := range next {
		if !slices.Contains(r.Final, arg) {
			describe("%s is missing", arg)
		}
	}
	named := slices.Concat(c.old, next, c.imageArgs())
	if before, after := unnamed(c.line, named), unnamed(r.Final, named); !before.Equal(after) {
		describe("what nobody named was %q and is %q", before, after)
	}
	c.line, c.old, c.image = r.Final, next, nil
}

func (c *chain) imageArgs() kargs.Line {
	if c.image == nil {
		return nil
	}
	return slices.Concat(c.image.Before, c.image.Now)
}

// byRule returns the arguments of a line that begin with a prefix.
func byRule(line kargs.Line, prefix string) []string {
	var rest []string
	for _, arg := range line {
		if len(arg) >= len(prefix) && arg[:len(prefix)] == prefix {
			rest = append(rest, arg)
		}
	}
	return rest
}

func isSubsequence(have, want []string) bool {
	for _, arg := range have {
		if len(want) > 0 && arg == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// unnamed returns the arguments of a line with keys that are not among others, in their order.
func unnamed(line, named kargs.Line) kargs.Line {
	var rest kargs.Line
	for _, arg := range line {
		if !slices.ContainsFunc(named, func(other string) bool { return sameSubject(arg, other) }) {
			rest = append(rest, arg)
		}
	}
	return rest
}

func sameSubject(a, b string) bool {
	huge := func(arg string) bool {
		return len(kargs.Line{arg}.Values("hugepages"))+len(kargs.Line{arg}.Values("hugepagesz"))+len(kargs.Line{arg}.Values("default_hugepagesz")) > 0
	}
	if huge(a) || huge(b) {
		return huge(a) && huge(b)
	}
	return a == b || a == "a_b=1" && b == "a-b=1" || a == "a-b=1" && b == "a_b=1"
}

// TestChainsSettle: whatever the line and the configurations that follow each other, each
// change takes effect and settles, and what nobody named stays.
func TestChainsSettle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	bytes := func(most int) []byte {
		b := make([]byte, random.IntN(most))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for range 2000 {
		c := chain{t: t, line: lineFrom(bytes(8))}
		first := lineFrom(bytes(6))
		for _, next := range []kargs.Line{first, lineFrom(bytes(6)), first, nil} {
			if random.IntN(4) == 0 {
				c.image = &kargs.ImageChange{Before: lineFrom(bytes(4)), Now: lineFrom(bytes(4))}
			}
			c.to(next)
			if t.Failed() {
				return
			}
		}
	}
}

// FuzzChains is TestChainsSettle for what the fuzzer finds.
func FuzzChains(f *testing.F) {
	f.Add([]byte{15, 12, 14, 12}, []byte{15, 12, 14, 12}, []byte{15, 12, 14, 13}, []byte{}, []byte{1})
	f.Add([]byte{0, 7, 8}, []byte{0, 0, 7, 8}, []byte{0, 8, 7}, []byte{7}, []byte{})
	f.Fuzz(func(t *testing.T, booted, first, second, before, now []byte) {
		c := chain{t: t, line: lineFrom(booted), image: &kargs.ImageChange{Before: lineFrom(before), Now: lineFrom(now)}}
		for _, next := range []kargs.Line{lineFrom(first), lineFrom(second), lineFrom(first), nil} {
			c.to(next)
		}
	})
}

// TestKeyRules: each rule of a key in the table is followed: where a foreign instance comes
// after the wanted ones, they take effect by the key's rule.
func TestKeyRules(t *testing.T) {
	for key, want := range map[string]string{
		"console": "moved", "loglevel": "moved", "module_blacklist": "moved", "mitigations": "moved", "isolcpus": "moved",
		"ip": "stays", "rd.luks.name": "stays", "rd.driver.blacklist": "stays", "modprobe.blacklist": "stays", "memmap": "stays",
		"acpi_osi": "stays", "initcall-blacklist": "stays", "systemd.mask": "stays", "usbcore.dyndbg": "stays", "earlycon": "stays",
	} {
		r, err := (kargs.Change{New: kargs.Line{key + "=1"}}).Apply(kargs.Line{key + "=1", key + "=2"})
		if err != nil {
			t.Fatal(err)
		}
		if got := map[bool]string{true: "moved", false: "stays"}[r.Changed]; got != want {
			t.Errorf("%s=1 %s: %q, want that it %s", key, got, r.Final, want)
		}
	}
}
