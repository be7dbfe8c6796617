package osimage_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
)

// TestAddArguments checks the format of a file, as supported by bootc.
func TestAddArguments(t *testing.T) {
	for _, c := range []struct {
		name, text, arch  string
		want, wrong, warn string
	}{
		{name: "arguments in their order", text: `kargs = ["quiet", "console=ttyS0"]`, want: "quiet console=ttyS0"},
		{name: "several in one entry", text: `kargs = ["quiet splash", 'x="a b" y']`, want: `quiet splash x="a b" y`},
		{name: "none", text: `kargs = []`},
		{name: "comments and lines", text: "# why\nkargs = [\n  \"quiet\", # yes\n]\n", want: "quiet"},
		{name: "for this architecture", text: `kargs = ["quiet"]` + "\n" + `match-architectures = ["aarch64", "x86_64"]`, want: "quiet"},
		{name: "for another", text: `kargs = ["quiet"]` + "\n" + `match-architectures = ["aarch64"]`},
		{name: "for none", text: `kargs = ["quiet"]` + "\n" + `match-architectures = []`},
		{name: "Rust's name of ppc64le", arch: "ppc64le", text: `kargs = ["quiet"]` + "\n" + `match-architectures = ["powerpc64"]`, want: "quiet"},
		{name: "Rust's name of arm64", arch: "arm64", text: `kargs = ["quiet"]` + "\n" + `match-architectures = ["aarch64"]`, want: "quiet"},
		{name: "the kernel's own name", arch: "s390x", text: `kargs = ["quiet"]` + "\n" + `match-architectures = ["s390x"]`, want: "quiet"},
		{name: "a name that is none of Rust's", text: `kargs = ["quiet"]` + "\n" + `match-architectures = ["amd64"]`,
			warn: `x.toml names the architecture "amd64", which is none by the names of Rust, as x86_64`},
		{name: "not TOML", text: "kargs = [", wrong: "x.toml: toml: "},
		{name: "another type", text: `kargs = "quiet"`, wrong: "x.toml: toml: "},
		{name: "numbers", text: `kargs = [1]`, wrong: "x.toml: toml: "},
		{name: "no kargs", text: `match-architectures = ["x86_64"]`, wrong: "x.toml: it has no key kargs"},
		{name: "an empty file", wrong: "x.toml: it has no key kargs"},
		{name: "a key that bootc does not know", text: `kargs = ["quiet"]` + "\n" + `match-platforms = ["aws"]`, wrong: "x.toml: there is no key match-platforms"},
		{name: "a table", text: "kargs = []\n[install]\nx = 1", wrong: "x.toml: there is no key install"},
		{name: "a key in other letters", text: `Kargs = ["quiet"]`, wrong: "x.toml: there is no key Kargs"},
		{name: "a quote that is not closed", text: `kargs = ['x="y', "quiet"]`, wrong: `x.toml: "x=\"y" has a quote that is not closed`, want: `x="y quiet`},
		{name: "a control character", text: `kargs = ["x\u0007"]`, wrong: `holds the control character 0x07`, want: "x\a"},
		{name: "for init", text: `kargs = ["-- single"]`, wrong: `"--" would hand every argument after it to init`, want: "-- single"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.arch == "" {
				c.arch = "amd64"
			}
			var a osimage.Arguments
			a.Add("x.toml", c.text, c.arch)
			if got := a.Line.String(); got != c.want {
				t.Errorf("arguments %q, want %q", got, c.want)
			}
			if got := strings.Join(a.Warnings, "\n"); !strings.Contains(got, c.warn) || (got == "") != (c.warn == "") {
				t.Errorf("warnings %q, want %q", got, c.warn)
			}
			err := a.Err()
			if c.wrong == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), c.wrong) || fault.HintOf(err) == "" {
				t.Errorf("error %v (%s), want %q", err, fault.HintOf(err), c.wrong)
			}
		})
	}
}

// FuzzKargs: any file gives valid arguments or an error.
func FuzzKargs(f *testing.F) {
	f.Add(`kargs = ["quiet"]`)
	f.Add("kargs = ['x=\"a b\"']\nmatch-architectures = [\"x86_64\"]")
	f.Add("kargs = [[[[")
	f.Fuzz(func(t *testing.T, text string) {
		var a osimage.Arguments
		a.Add("x.toml", text, "amd64")
		if err := a.Err(); err != nil {
			return
		}
		for _, arg := range a.Line {
			if strings.ContainsAny(arg, "\n\r\x00") || arg == "--" || arg == "" {
				t.Errorf("argument %q of %q", arg, text)
			}
		}
	})
}
