package stories_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
)

// death says where the program is killed: before or after its nth call of another program.
type death struct {
	call  int
	after bool
}

// mutant changes the calls of other programs; nil changes none.
type mutant func(argv []string) []string

// runUntil runs the first boot until it ends, or is killed at d. It returns the number of calls
// of other programs, and the error. A killed run never returns from its last call, so that its
// deferred functions do not run.
func runUntil(t *testing.T, h *hostdir.Host, d death, m mutant) (calls int, died bool, err error) {
	t.Helper()
	run, dead, ended := h.Run, make(chan struct{}), make(chan error, 1)
	die := func() {
		close(dead)
		select {}
	}
	h.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		calls++
		if d == (death{calls, false}) {
			die()
		}
		if m != nil {
			argv = m(argv)
		}
		out, err := run(ctx, argv...)
		if d == (death{calls, true}) {
			die()
		}
		return out, err
	}
	go func() {
		_, err := bootWith(t, h, "auto")
		ended <- err
	}()
	select {
	case <-dead:
		died = true
	case err = <-ended:
	}
	h.Run = run
	return calls, died, err
}

// checkWhole returns an error unless the running system is the old one, or the new one with
// everything that was asked for.
func checkWhole(h *hostdir.Host) error {
	kernels, err := filepath.Glob(h.Path("/usr/lib/modules/*/vmlinuz"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("kernels %q, %v", kernels, err)
	}
	got := []any{h.Version(), filepath.Base(filepath.Dir(kernels[0])), strings.HasSuffix(h.Options(), " nosmt"), string(h.Read("/usr/bin/usbguard")), string(h.Read("/etc/asked"))}
	for _, want := range [][]any{{"A.1", "6.1", false, "", ""}, {"B.2", "6.1+rt", true, "usbguard", "for"}} {
		if slices.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("a mixture runs: version, kernel, arguments, extension, file: %v", got)
}

// askAll asks for image, kernel, extension, an argument and a file.
func askAll(h *hostdir.Host, image string) {
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"spec":{"osImageURL":%q,"baseOSExtensionsContainerImage":%q,"kernelType":"realtime","extensions":["usbguard"],
"kernelArguments":["nosmt"],"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/asked","contents":{"source":"data:,for"}}]}}}}`, h.Image, image))
}

// packagesHost returns a host with the request of askAll. Its libostree keeps the lock in the
// staged state.
func packagesHost(t *testing.T) *hostdir.Host {
	t.Helper()
	h, image := extensionsHost(t, rpms)
	h.Ostree.Version = hostdir.LockInState
	askAll(h, image)
	return h
}

// afterDeath has what can happen to the host after the program was killed.
var afterDeath = map[string]func(h *hostdir.Host){
	"started again": func(*hostdir.Host) {},
	"shut down":     func(h *hostdir.Host) { h.Shutdown() },
	"power cut":     func(h *hostdir.Host) { h.Boot() },
}

// recoverFrom kills the program once, then boots until the machine is at its target. It returns
// an error if the machine does not get there, or boots a mixture of both systems.
func recoverFrom(t *testing.T, d death, then string, m mutant) error {
	t.Helper()
	h := packagesHost(t)
	if _, died, err := runUntil(t, h, d, m); !died {
		return err
	}
	afterDeath[then](h)
	for range 4 {
		if err := checkWhole(h); err != nil {
			return err
		}
		reboots := h.Reboots
		if _, _, err := runUntil(t, h, death{}, m); err != nil && h.Reboots == reboots {
			return err
		}
		if h.Reboots == reboots {
			break
		}
		h.Boot()
	}
	if h.Version() != "B.2" || h.Read(firstboot.EncapsulatedPath+".bak") == nil {
		return errors.New("the machine does not arrive")
	}
	for _, path := range []string{"/var/cache/pivot", "/etc/yum.repos.d/pivot-extensions.repo"} {
		if _, err := os.Lstat(h.Path(path)); err == nil {
			return fmt.Errorf("%s is left", path)
		}
	}
	return checkWhole(h)
}

// TestPackagesKilled (P80): pivot is killed before or after any call of another program, and then
// started again, shut down or without power. Each boot is the old system or the complete new
// one, and the machine reaches its target with nothing left behind.
func TestPackagesKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("lives many lives")
	}
	h := packagesHost(t)
	calls, _, err := runUntil(t, h, death{}, nil)
	if err != nil || calls < 8 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	lives := 0
	for n := 1; n <= calls; n++ {
		for _, d := range []death{{n, false}, {n, true}} {
			for then := range afterDeath {
				name := fmt.Sprintf("call %d after %v, %s", n, d.after, then)
				if os.Getenv("PIVOT_SWEEP") != "long" && !sample.Picks(name, 4) {
					continue
				}
				lives++
				if err := recoverFrom(t, d, then, nil); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	t.Logf("swept kills around calls, with packages: %d calls, %d lives", calls, lives)
	if lives < 10 {
		t.Errorf("%d lives only", lives)
	}
}

// TestPackagesMutants: the sweep catches an engine that does not lock the staged deployment, and one with a last call
// that changes nothing.
func TestPackagesMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("lives many lives")
	}
	unlocked := func(argv []string) []string {
		return slices.DeleteFunc(slices.Clone(argv), func(arg string) bool { return argv[0] == "rpm-ostree" && arg == "--lock-finalization" })
	}
	changesNothing := func(argv []string) []string {
		if len(argv) > 1 && argv[1] == "override" {
			return []string{"rpm-ostree", "status", "--json"}
		}
		return argv
	}
	if err := recoverFrom(t, death{call: -1}, "", changesNothing); err == nil || !strings.Contains(err.Error(), "still needs") {
		t.Errorf("a call that changes nothing: %v", err)
	}
	h := packagesHost(t)
	calls, _, err := runUntil(t, h, death{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for n := 1; n <= calls; n++ {
		if err := recoverFrom(t, death{n, true}, "shut down", unlocked); err != nil && strings.Contains(err.Error(), "mixture") {
			noticed++
		}
	}
	if noticed == 0 {
		t.Error("a chain that is not locked is not noticed")
	}
}
