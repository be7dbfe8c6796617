package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	systemdunits "machine-pivot/systemd-units"
	"machine-pivot/test/worlds/hostsystemd"
)

// TestStaticPodsUnits runs the units of static pods, with other paths and another command, by the real systemd.
// Each change of what the path unit watches starts the service, also if what is watched was not there at first.
func TestStaticPodsUnits(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	dir := t.TempDir()
	systemctl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("systemctl", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("systemctl %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	units := filepath.Dir(systemctl("show", "-P", "FragmentPath", "default.target"))
	text := func(unit string) string {
		data, err := systemdunits.Files.ReadFile(unit) // inside, the checkout is elsewhere
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	watch := strings.NewReplacer("=/etc/", "="+dir+"/").Replace(text("pivot-static-pods.path"))
	service := strings.NewReplacer("|/etc/", "|"+dir+"/", "ExecStart=/usr/bin/pivot static-pods", "ExecStart=/bin/sh -c 'echo ran >> "+dir+"/log'").
		Replace(text("pivot-static-pods.service"))
	write(t, filepath.Join(units, "pivot-static-pods.path"), watch, 0o644)
	write(t, filepath.Join(units, "pivot-static-pods.service"), service, 0o644)
	systemctl("daemon-reload")
	systemctl("start", "pivot-static-pods.path")

	runs := func() int {
		log, _ := os.ReadFile(filepath.Join(dir, "log")) // it may not exist yet
		return strings.Count(string(log), "\n")
	}
	// settle waits until the path unit waits for the next change.
	settle := func() {
		t.Helper()
		for range 3000 {
			if systemctl("show", "-P", "SubState", "pivot-static-pods.path")+systemctl("show", "-P", "ActiveState", "pivot-static-pods.service") == "waitinginactive" {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Fatalf("the units do not settle: %s", systemctl("show", "-p", "SubState,Result", "pivot-static-pods.path", "pivot-static-pods.service"))
	}
	changes := func(what string, change func(), starts bool) {
		t.Helper()
		settle()
		before := runs()
		change()
		for range 3000 {
			if runs() > before || !starts {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		settle()
		if started := runs() > before; started != starts {
			t.Errorf("%s starts the service: %v", what, started)
		}
	}
	pinning, pods := filepath.Join(dir, "kubernetes/openshift-workload-pinning"), filepath.Join(dir, "pivot/static-pods")
	changes("a pinning file, without static pods,", func() { write(t, pinning, "{}", 0o644) }, false)
	changes("the first pod", func() { write(t, filepath.Join(pods, "a.yaml"), "a", 0o644) }, true)
	changes("a change of a pod", func() { write(t, filepath.Join(pods, "a.yaml"), "b", 0o644) }, true)
	changes("a pod that is renamed into the directory", func() {
		write(t, filepath.Join(dir, "other"), "c", 0o644)
		if err := os.Rename(filepath.Join(dir, "other"), filepath.Join(pods, "b.yaml")); err != nil {
			t.Fatal(err)
		}
	}, true)
	changes("the removal of a pod", func() {
		if err := os.Remove(filepath.Join(pods, "a.yaml")); err != nil {
			t.Fatal(err)
		}
	}, true)
	changes("a change of the pinning file", func() { write(t, pinning, `{"management": {"cpuset": ""}}`, 0o644) }, true)
	changes("the removal of the pinning file", func() {
		if err := os.Remove(pinning); err != nil {
			t.Fatal(err)
		}
	}, true)
	write(t, filepath.Join(dir, "pivot/static-pods.json"), "{}", 0o644)
	changes("the removal of the directory", func() {
		if err := os.RemoveAll(pods); err != nil {
			t.Fatal(err)
		}
	}, true)
}
