package ostree_test

import (
	"errors"
	"testing"

	"machine-pivot/internal/ostree"
)

// TestPrepareRoot: the demands of a commit's prepare-root.conf on its deployment, combined
// with the kernel argument that overrides it.
func TestPrepareRoot(t *testing.T) {
	no, composefs, verity := ostree.Demands{}, ostree.Demands{Composefs: true}, ostree.Demands{Composefs: true, Verity: true}
	signed := ostree.Demands{Composefs: true, Verity: true, Signed: true}
	for _, c := range []struct {
		text, argument string
		want           ostree.Demands
		seesRoot       bool
	}{
		{"", "", no, false},
		{"[composefs]\nenabled=no\n", "", no, false},
		{"[composefs]\nenabled=false\n", "", no, false},
		{"[composefs]\nenabled=0\n", "", no, false},
		{"[composefs]\nenabled=maybe\n", "", no, true},
		{"[composefs]\nenabled=yes\n", "", composefs, true},
		{"[composefs]\nenabled = true \n", "", composefs, true},
		{"[composefs]\nenabled=1\n", "", composefs, true},
		{"[composefs]\nenabled=verity\n", "", verity, true},
		{"[composefs]\nenabled=signed\n", "", signed, true},
		{"[composefs]\nenabled=yes\n[composefs]\nenabled=maybe\n", "", no, true},
		{"[root]\ntransient=true\n", "", composefs, true},
		{"[root]\ntransient=false\n", "", no, false},
		{"[root]\ntransient-ro=1\n[composefs]\nenabled=maybe\n", "", composefs, true},
		{"[etc]\ntransient=true\n", "", ostree.Demands{TransientEtc: true}, false},
		{"", "1", composefs, false},
		{"", "signed", signed, false},
		{"[composefs]\nenabled=maybe\n", "true", composefs, true},
		{"[composefs]\nenabled=yes\n", "maybe", composefs, true}, // releases before 2024.7 do not know the argument
		{"[composefs]\nenabled=yes\n", "0", composefs, true},
	} {
		p, err := ostree.ParsePrepareRoot([]byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		var arguments []string
		if c.argument != "" {
			arguments = []string{c.argument}
		}
		if got := p.Demands(arguments...); got != c.want || p.SeesRoot() != c.seesRoot {
			t.Errorf("%q with %q: %+v, the root is seen: %v; want %+v, %v", c.text, c.argument, got, p.SeesRoot(), c.want, c.seesRoot)
		}
	}
	for _, text := range []string{
		"[composefs]\nenabled=perhaps\n", "[composefs]\nenabled=\n", "[composefs]\nenabled=Yes\n", "[root]\ntransient=on\n", "[etc]\ntransient=maybe\n",
		"[root]\ntransient=true\ntransient-ro=true\n", "enabled=yes\n",
	} {
		if _, err := ostree.ParsePrepareRoot([]byte(text)); !errors.Is(err, ostree.ErrPrepareRoot) {
			t.Errorf("%q: no error, though ostree-prepare-root stops there", text)
		}
	}
}
