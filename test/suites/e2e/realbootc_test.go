package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// TestRealBootc tries bootc itself beside pivot. PIVOT_BOOTC is the program, built for the guest's release of Debian;
// without it, the test is skipped. It is part of "make nightly".
func TestRealBootc(t *testing.T) {
	program := os.Getenv("PIVOT_BOOTC")
	if program == "" {
		t.Skip("PIVOT_BOOTC does not name a bootc to try; test/suites/stories.TestWhatBootcReads checks what it reads")
	}
	world := newLab(t, vm.GuestSpec{Suite: vm.Forky, Overlay: append(containerTools(t), vm.TreeFile{Path: "/usr/bin/bootc", Mode: 0o755, Source: program})})
	together(t, []bootCase{
		{"status", func(t *testing.T) { readsStatus(t, alone(t, world)) }},
		{"a tag that moves", func(t *testing.T) { seesMovedTag(t, alone(t, world)) }},
	})
}

// containerTools returns the files of Debian's packages by which bootc asks a registry (skopeo) and looks into its storage
// of application images (podman). What else they need is in the guest.
func containerTools(t *testing.T) []vm.TreeFile {
	t.Helper()
	packages, err := (&vm.Builder{Log: testLog{t}}).Packages(t.Context(), vm.GuestSpec{Suite: vm.Forky}, []string{"skopeo", "podman", "crun", "conmon", "netavark"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const libraries = "usr/lib/x86_64-linux-gnu/"
	files := []vm.TreeFile{{Path: "/etc/containers/policy.json", Mode: 0o644, Content: []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`)}}
	for _, name := range []string{
		"usr/bin/skopeo", "usr/bin/podman", "usr/bin/crun", "usr/bin/conmon", "usr/lib/podman/netavark",
		libraries + "libsubid.so.6", libraries + "libjson-c.so.5", libraries + "libblake3.so.0",
	} {
		files = append(files, vm.TreeFile{Path: "/" + name, Mode: 0o755, Source: filepath.Join(packages, name)})
	}
	return files
}

// seesMovedTag: where pivot has committed an image by its tag, bootc follows the tag. Its check finds nothing while the
// tag is the same, and the new digest when it has moved; after "pivot upgrade" it finds nothing again.
func seesMovedTag(t *testing.T, l *bootlab.Lab) {
	push := func(content string) (tag, digest string) {
		t.Helper()
		image, err := l.WithFiles(t.Context(), "followed", map[string]string{"usr/share/followed": content})
		if err != nil {
			t.Fatal(err)
		}
		name, digest, _ := strings.Cut(image, "@")
		return name + ":b", digest
	}
	tag, first := push("first")
	check := `out=$(bootc upgrade --check 2>&1) && say check $out || say check failed: $out`
	files, err := bootlab.Day2(`out=$(bootc status --json 2>&1); say booted "$out"`+"\n", map[string]string{
		"follow":  "pivot rebase " + tag + "; systemctl reboot",
		"check":   "./check",
		"upgrade": "./check; pivot upgrade; systemctl reboot",
	})
	if err != nil {
		t.Fatal(err)
	}
	files = append(files,
		bootlab.SayingScript("/var/lib/day2/check", check+"\n"),
		vm.TreeFile{Path: "/etc/ostree/auth.json", Mode: 0o600, Content: l.Registry.PullSecret(l.Registry.HostAs(bootlab.GuestHost))},
	)
	m, err := l.MachineByHand(t.Context(), diskName(t), "true", files, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	boot(t, m, bootlab.TypedOn("follow"))
	said := func(word string) map[string]string { return bootlab.Day2Said(boot(t, m, bootlab.TypedOn(word))) }
	expect := func(when string, said map[string]string, runs string, moved string) {
		t.Helper()
		if got := bootcStatus(t, when, said["booted"]).Booted.digest(); got != runs {
			t.Errorf("%s: bootc says that %q is booted, want %q", when, got, runs)
		}
		none := strings.Contains(said["check"], "No changes in: docker://"+tag)
		if found := moved != "" && strings.Contains(said["check"], moved); none != (moved == "") || found != (moved != "") {
			t.Errorf("%s: bootc upgrade --check: %q; the tag has moved to %q", when, said["check"], moved)
		}
	}
	expect("after the commit", said("check"), first, "")
	_, second := push("second")
	expect("after the tag has moved", said("upgrade"), first, second)
	expect("after pivot upgrade", said("check"), second, "")
}

// readsStatus: bootc reads a host before and after pivot's commits of a native, a derived and a plain image. Its status
// succeeds, and names the running image and the committed one.
func readsStatus(t *testing.T, l *bootlab.Lab) {
	images := map[string]string{}
	for kind, make := range map[string]func() (string, error){
		"native": func() (string, error) {
			img, err := oscontainer.Encapsulated(l.Guest.BareRepo(), l.Guest.CommitB, oscontainer.WithWorkDir(t.TempDir()), oscontainer.WithChunks(8))
			if err != nil {
				return "", err
			}
			return l.Push(t.Context(), "native", img)
		},
		"derived": func() (string, error) { return l.Derived(t.Context()) },
		"plain":   func() (string, error) { return l.Plain(t.Context(), 20) },
	} {
		var err error
		if images[kind], err = make(); err != nil {
			t.Fatal(err)
		}
	}
	typed := map[string]string{"nothing": "true"}
	for kind, image := range images {
		typed[kind] = "pivot rebase " + image + "; ./says committed; systemctl reboot"
	}
	files, err := bootlab.Day2(`out=$(bootc status --json 2>&1) && say "${1:-booted}" "$out" || say "${1:-booted}" "failed: $out"`+"\n", typed)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.MachineByHand(t.Context(), diskName(t), "true", files, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	runs := ""
	for _, kind := range []string{"native", "derived", "plain", "nothing"} {
		b := boot(t, m, bootlab.TypedOn(kind))
		if wanted := map[bool]vm.Reason{true: vm.PoweredOff, false: vm.Rebooted}[kind == "nothing"]; b.Exit != wanted {
			t.Fatalf("%s: the machine %s", kind, b.Exit)
		}
		said := bootlab.Day2Said(b)
		if got := bootcStatus(t, kind, said["booted"]).Booted.digest(); got != runs {
			t.Errorf("%s: bootc says that %q is booted, want %q", kind, got, runs)
		}
		if kind == "nothing" {
			break
		}
		_, runs, _ = strings.Cut(images[kind], "@")
		if s := bootcStatus(t, kind+", committed", said["committed"]); s.Rollback.digest() != runs || !s.RollbackQueued {
			t.Errorf("%s, committed: bootc says that %q is the other deployment (queued %v), want %s", kind, s.Rollback.digest(), s.RollbackQueued, runs)
		}
	}
}

// bootcEntry is a boot entry in bootc's status.
type bootcEntry struct {
	Incompatible bool
	Image        *struct{ ImageDigest string }
}

// digest returns the digest of the entry's image; "" if it is of none.
func (e *bootcEntry) digest() string {
	if e == nil || e.Image == nil {
		return ""
	}
	return e.Image.ImageDigest
}

// bootcState is the part of bootc's status that is about boot entries.
type bootcState struct {
	Booted, Rollback, Staged *bootcEntry
	RollbackQueued           bool
}

// bootcStatus reads what bootc has printed.
func bootcStatus(t *testing.T, when, text string) bootcState {
	t.Helper()
	var found struct{ Status bootcState }
	if err := json.Unmarshal([]byte(text), &found); err != nil || found.Status.Booted == nil {
		t.Fatalf("%s: bootc status: %q (%v)", when, text, err)
	}
	if found.Status.Booted.Incompatible {
		t.Errorf("%s: bootc says that the system is incompatible: %s", when, text)
	}
	return found.Status
}
