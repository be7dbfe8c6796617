package ostree_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
)

// TestBootEntriesAsLibostree: which entries are deployments', and in which order, is what the real ostree says,
// whatever else is in the directory. Where it reads none, neither does pivot, and says which entry is why.
func TestBootEntriesAsLibostree(t *testing.T) {
	root := newSysroot(t)
	run(t, "ostree", "admin", "deploy", "--sysroot="+root, "--os=os1", "--karg-append=second", "a")
	run(t, "ostree", "admin", "deploy", "--sysroot="+root, "--os=os1", "--karg-append=third", "--retain", "a")
	dir := filepath.Join(root, "boot/loader/entries")
	text := func(n int) string {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("ostree-%d-os1.conf", n)))
		check(t, err)
		return string(data)
	}
	one, version := text(1), regexp.MustCompile(`(?m)^version.*\n`)
	as := func(line string) string { return version.ReplaceAllString(one, line) }
	for name, c := range map[string]struct {
		make  string // a file name
		text  string // its content, or what it links to
		link  bool
		fails string // what the error names; "": it does not fail
	}{
		"nothing":                     {},
		"a rescue copy":               {make: "rescue.conf", text: as("version 99\n")},
		"another suffix":              {make: "ostree-9-os1.conf.bak", text: as("version 99\n")},
		"no link of its own":          {make: "other.conf", text: "title x\noptions ostree=/ostree/boot.1/other/0/0\n"},
		"a copy with ostree's name":   {make: "ostree-9-rescue.conf", text: as("version 99\n")},
		"by a number":                 {make: "ostree-9-os1.conf", text: as("version 10\n")},
		"by a tab":                    {make: "ostree-9-os1.conf", text: as("version\t9\n")},
		"two spaces":                  {make: "ostree-9-os1.conf", text: as("version  9\n")},
		"leading zeros":               {make: "ostree-9-os1.conf", text: as("version 09\n")},
		"no number":                   {make: "ostree-9-os1.conf", text: as("version new\n")},
		"no version":                  {make: "ostree-9-os1.conf", text: as("")},
		"two versions":                {make: "ostree-9-os1.conf", text: as("version 9\nversion 0\n")},
		"an indented one":             {make: "ostree-9-os1.conf", text: as("version 0\n version 9\n")},
		"an old counter of boots":     {make: "ostree-9-os1+3.conf", text: as("version 9\n")},
		"a link to an entry":          {make: "ostree-9-os1.conf", text: "ostree-1-os1.conf", link: true},
		"a link to nowhere":           {make: "x.conf", text: "nowhere", link: true, fails: "x.conf"},
		"an entry without a link":     {make: "ostree-9-os1.conf", text: "title x\n", fails: "ostree-9-os1.conf"},
		"a link to another directory": {make: "ostree-9-os1.conf", text: "title x\noptions ostree=/ostree/deploy/x\n", fails: "ostree-9-os1.conf"},
		"a tab before ostree=":        {make: "ostree-9-os1.conf", text: strings.ReplaceAll(as("version 9\n"), " ostree=", "\tostree="), fails: "ostree-9-os1.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, c.make)
			check(t, os.MkdirAll(filepath.Join(dir, "ostree-7-directory.conf"), 0o755))
			switch {
			case c.link:
				check(t, os.Symlink(c.text, file))
			case c.make != "":
				write(t, file, c.text)
			}
			defer os.Remove(file)
			want, failed := status(t, root)
			all, err := ostree.OpenSysroot(root).Deployments()
			if failed != (c.fails != "") || (err != nil) != failed || failed && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("ostree fails: %v; pivot: %v", failed, err)
			}
			var got []string
			for _, d := range all {
				got = append(got, fmt.Sprintf("%s.%d", d.Checksum, d.Serial))
			}
			if !slices.Equal(got, want) {
				t.Errorf("the deployments are %s, and for ostree %s", got, want)
			}
		})
	}
}

// status returns the deployments that the real ostree lists, in its order, and whether it fails.
func status(t *testing.T, root string) (names []string, failed bool) {
	t.Helper()
	out, err := exec.Command("ostree", "admin", "status", "--sysroot="+root).CombinedOutput()
	return regexp.MustCompile(`(?m)[0-9a-f]{64}\.[0-9]+`).FindAllString(string(out), -1), err != nil
}

// TestForeignKeys: keys that libostree does not write are known, apart from those that the repository's configuration has
// it add to entries which are not the default.
func TestForeignKeys(t *testing.T) {
	root := newSysroot(t)
	run(t, "ostree", "config", "--repo="+root+"/ostree/repo", "set", "sysroot.bls-append-except-default", `grub_users="";other=x`)
	run(t, "ostree", "admin", "deploy", "--sysroot="+root, "--os=os1", "a")
	all, err := ostree.OpenSysroot(root).Deployments()
	check(t, err)
	file := filepath.Join(root, "boot/loader/entries", all[1].Entry.File)
	text, err := os.ReadFile(file)
	check(t, err)
	write(t, file, string(text)+"grub_arg --unrestricted\nx-options-source-tuned a=1\n")
	all, err = ostree.OpenSysroot(root).Deployments()
	check(t, err)
	repo, err := ostree.OpenRepo(root + "/ostree/repo")
	check(t, err)
	appended := repo.AppendedKeys()
	if len(all[0].Entry.ForeignKeys()) != 0 || len(appended) != 2 {
		t.Errorf("the default has %q, and others get %q", all[0].Entry.ForeignKeys(), appended)
	}
	have := all[1].Entry.ForeignKeys()
	for _, want := range append(appended, ostree.Key{Name: "grub_arg", Value: "--unrestricted"}, ostree.Key{Name: "x-options-source-tuned", Value: "a=1"}) {
		if !slices.Contains(have, want) {
			t.Errorf("the other lacks %q: %q", want, have)
		}
	}
	data, err := os.ReadFile(file)
	check(t, err)
	without := ostree.WithoutKeys(string(data), appended)
	if strings.Contains(without, "grub_users") || !strings.Contains(without, "grub_arg --unrestricted\n") {
		t.Errorf("without them it is %s", without)
	}
}

// TestMinFreeSpace: the settings are accepted and refused as by the real ostree.
func TestMinFreeSpace(t *testing.T) {
	root := newSysroot(t)
	config := filepath.Join(root, "ostree/repo/config")
	before, err := os.ReadFile(config)
	check(t, err)
	for _, setting := range []string{
		"min-free-space-size=1048576MB", "min-free-space-size=0MB", "min-free-space-size=17592186044415MB", "min-free-space-size=1GB\nmin-free-space-percent=5",
		"min-free-space-size=0MB\nmin-free-space-percent=5", "min-free-space-size=5", "min-free-space-size=5 MB", "min-free-space-size=5KB", "min-free-space-size=MB",
		"min-free-space-size=-1MB", "min-free-space-size=1.5GB", "min-free-space-size=99999999TB", "min-free-space-size=99999999999999999999MB", "min-free-space-size=99999999999999999TB", "min-free-space-percent=005", "min-free-space-percent=",
		"min-free-space-percent=100", "min-free-space-size=5mb",
		"fsync=1", "per-object-fsync=1", "fsync=no",
	} {
		write(t, config, strings.Replace(string(before), "[core]\n", "[core]\n"+setting+"\n", 1))
		_, err := ostree.OpenRepo(filepath.Dir(config))
		out, refused := exec.Command("ostree", "refs", "--repo="+filepath.Dir(config)).CombinedOutput()
		if (err != nil) != (refused != nil) {
			t.Errorf("%q: pivot says %v, and ostree %v %s", setting, err, refused, out)
		}
	}
}
