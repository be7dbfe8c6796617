package ostree_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// forms are key files that write a setting in different ways, with the value of group.key.
var forms = []struct {
	name, text, want string
	none             bool // there is no such setting
}{
	{name: "plain", text: "[group]\nkey=value\n", want: "value"},
	{name: "spaces around the sign", text: "[group]\n  key \t=  a value\n", want: "a value"},
	{name: "a sign in the value", text: "[group]\nkey=a=b\n", want: "a=b"},
	{name: "no value", text: "[group]\nkey=\n", want: ""},
	{name: "the last value", text: "[group]\nkey=first\nkey=last\n", want: "last"},
	{name: "a group that stands twice", text: "[group]\nkey=first\n[other]\nkey=x\n[group]\nkey=last\n", want: "last"},
	{name: "a key of the group's first part", text: "[group]\nkey=first\n[other]\nkey=x\n[group]\nelse=last\n", want: "first"},
	{name: "comments", text: "# key=x\n[group]\n#key=x\n  # key=x\nkey=value # no comment\n", want: "value # no comment"},
	{name: "carriage returns", text: "[group]\r\nkey=value\r\n", want: "value"},
	{name: "spaces around the group", text: "  [group]  \nkey=value", want: "value"},
	{name: "empty lines", text: "\n\n[group]\n \nkey=value\n\n", want: "value"},
	{name: "another group's key", text: "[other]\nkey=x\n[group]\nelse=y\n", none: true},
	{name: "another case", text: "[Group]\nkey=x\n[group]\nKey=y\n", none: true},
	{name: "a space in the group's name", text: "[ group ]\nkey=x\n", none: true},
	{name: "a very long line", text: "[other]\nkey=" + strings.Repeat("x", 100_000) + "\n[group]\nkey=value\n", want: "value"},
}

func TestValue(t *testing.T) {
	for _, c := range forms {
		t.Run(c.name, func(t *testing.T) {
			f, err := ostree.ParseKeyFile([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got, found := f.Value("group", "key"); got != c.want || found == c.none {
				t.Errorf("%q, %v; want %q, %v", got, found, c.want, !c.none)
			}
		})
	}
}

// broken are key files that GLib rejects.
var broken = map[string]string{
	"a key before any group":    "key=value\n[group]\n",
	"no sign":                   "[group]\nkey\n",
	"a group that does not end": "[group\nkey=value\n",
	"text after the group":      "[group] x\nkey=value\n",
	"a group without a name":    "[]\nkey=value\n",
	"no key":                    "[group]\n=value\n",
}

func TestParseErrors(t *testing.T) {
	for name, text := range broken {
		if _, err := ostree.ParseKeyFile([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := ostree.ParseKeyFile([]byte("[group]\nkey=\xff\n")); err == nil {
		t.Error("not UTF-8: no error")
	}
}

// TestAgainstGLib compares with the real ostree, which reads its repository's config with GLib.
func TestAgainstGLib(t *testing.T) {
	need.Ostree(t)
	repo := filepath.Join(t.TempDir(), "repo")
	if out, err := exec.Command("ostree", "init", "--repo="+repo, "--mode=bare-user").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ask := func(text string) (string, error) {
		config := text
		if !strings.HasSuffix(text, "\n") {
			config += "\n"
		}
		if err := os.WriteFile(filepath.Join(repo, "config"), []byte(config+"[core]\nrepo_version=1\nmode=bare-user\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ostree", "config", "--repo="+repo, "get", "group.key").Output()
		return strings.TrimSuffix(string(out), "\n"), err
	}
	for _, c := range forms {
		if got, err := ask(c.text); got != c.want || (err != nil) != c.none {
			t.Errorf("%s: ostree says %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	for name, text := range broken {
		if got, err := ask(text); err == nil {
			t.Errorf("%s: ostree takes it, and says %q", name, got)
		}
	}
}

// TestBytes: Bytes writes groups and settings in the order in which they were first read.
func TestBytes(t *testing.T) {
	const text = "[b]\nx=1\ny = 2\nx=3\n\n# comment\n[a]\nz=4\n[b]\nw=5\n"
	f, err := ostree.ParseKeyFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(f.Bytes()), "[b]\nx=3\ny=2\nw=5\n[a]\nz=4\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
