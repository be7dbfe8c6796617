package initramfs_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
	"machine-pivot/test/worlds/hostsystemd"
)

// TestRequestEnter asks the real systemd to enter what was committed. In a boot, it is going to start the unit that
// does that when pivot-initramfs.service has ended. If that unit is restarted by hand, as in the emergency shell,
// nothing continues, so nothing is requested.
func TestRequestEnter(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	systemctl := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
			t.Fatalf("systemctl %q: %v\n%s", args, err, out)
		}
	}
	dir, units := t.TempDir(), hostsystemd.Units(t)
	unit := func(name, text string) { write(t, filepath.Join(units, name), text) }
	// The order and the dependencies of the dracut module.
	unit("initrd.target", "[Unit]\nRequires=pivot-initramfs.service\nWants=pivot-enter.service\n")
	unit("pivot-initramfs.service", "[Unit]\nDefaultDependencies=no\nBefore=initrd.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"+
		"ExecStart=/bin/sh -c 'echo x >>"+dir+"/begun; until [ -e "+dir+"/end ]; do sleep 0.05; done; rm "+dir+"/end'\n")
	unit("pivot-enter.service", "[Unit]\nDefaultDependencies=no\nAfter=pivot-initramfs.service\nBefore=initrd.target\nConditionPathExists=/run/pivot/enter.json\n"+
		"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo x >>"+dir+"/entered'\n")
	systemctl("daemon-reload")
	lines := func(file string) int {
		text, _ := os.ReadFile(filepath.Join(dir, file))
		return strings.Count(string(text), "\n")
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for range 400 {
			if done() {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("not yet: %s", what)
	}
	active := func(unit string) bool { return exec.Command("systemctl", "is-active", "--quiet", unit).Run() == nil }

	i, running, deployment := committed(t)
	systemctl("start", "--no-block", "initrd.target")
	await("pivot-initramfs.service runs", func() bool { return lines("begun") == 1 })
	if err := i.RequestEnter(t.Context(), running, deployment); err != nil {
		t.Errorf("in a boot: %v", err)
	}
	write(t, dir+"/end", "")
	await("initrd.target", func() bool { return active("initrd.target") })
	if request, err := initramfs.ReadEnterRequest("/run"); err != nil || request.Deployment != deployment || lines("entered") != 1 {
		t.Errorf("requested %+v, %v; entered %d times", request, err, lines("entered"))
	}

	must(t, os.Remove("/run/pivot/enter.json"))
	systemctl("stop", "initrd.target", "pivot-enter.service")
	systemctl("restart", "--no-block", "pivot-initramfs.service")
	await("pivot-initramfs.service runs again", func() bool { return lines("begun") == 2 })
	err := i.RequestEnter(t.Context(), running, deployment)
	if err == nil || !strings.Contains(err.Error(), "systemd is not going to start pivot-enter.service") {
		t.Errorf("in the emergency shell: %v", err)
	}
	write(t, dir+"/end", "")
	await("pivot-initramfs.service", func() bool { return active("pivot-initramfs.service") })
	if _, err := os.Stat("/run/pivot/enter.json"); err == nil || lines("entered") != 1 {
		t.Errorf("requested: %v; entered %d times", err == nil, lines("entered"))
	}
}

// committed returns an initramfs with a commit that can be entered, and the ID of what was committed.
func committed(t *testing.T) (*initramfs.Initramfs, initramfs.Running, string) {
	t.Helper()
	root := t.TempDir()
	entry := func(link string) string {
		return "options root=UUID=1 rw ostree=" + link + "\nlinux /ostree/os-77/vmlinuz\ninitrd /ostree/os-77/initramfs.img\n"
	}
	for version, link := range map[string]string{"1": "/ostree/boot.0/os/77/1", "2": "/ostree/boot.0/os/77/0"} {
		sum := strings.Repeat(version, 64)
		write(t, root+"/ostree/deploy/os/deploy/"+sum+".0/usr/lib/os-release", "")
		must(t, os.MkdirAll(root+filepath.Dir(link), 0o755))
		must(t, os.Symlink("../../../deploy/os/deploy/"+sum+".0", root+link))
		write(t, root+"/boot/loader/entries/ostree-"+version+".conf", "version "+version+"\n"+entry(link))
	}
	all, err := ostree.OpenSysroot(root).Deployments()
	must(t, err)
	old := all[1]
	return initramfs.New(root), initramfs.Running{
		Deployment: old.DeploymentRef, Linked: old.DeploymentRef, Entry: old.Entry, Cmdline: kargs.Split("root=UUID=1 rw " + old.Entry.Options),
	}, all[0].ID()
}

// childSilent makes TestRequestEnterSilent act as the program that calls RequestEnter.
const childSilent = "TEST_ENTER_SILENT"

// TestRequestEnterSilent: a systemd that is not there, or does not answer, is no way on.
func TestRequestEnterSilent(t *testing.T) {
	if how := os.Getenv(childSilent); how != "" {
		if _, err := os.Stat("/run/systemd"); err == nil {
			socket, err := net.Listen("unix", "/run/systemd/private")
			must(t, err)
			defer socket.Close()
		}
		i, running, deployment := committed(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		os.Stdout.WriteString(i.RequestEnter(ctx, running, deployment).Error() + "\n")
		return
	}
	if testing.Short() {
		t.Skip("waits ten seconds")
	}
	needRoot(t)
	t.Parallel()
	for setup, want := range map[string]string{
		"":                        "cannot reach systemd: ",
		"mkdir -p /run/systemd; ": "systemd does not answer within 10s",
	} {
		begun := time.Now()
		out, err := elsewhere(t, childSilent, setup)
		if err != nil || !strings.Contains(out, want) || time.Since(begun) > 40*time.Second {
			t.Errorf("%v after %s, want %q:\n%s", err, time.Since(begun), want, out)
		}
	}
}
