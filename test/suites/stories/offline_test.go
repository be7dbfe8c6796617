package stories_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/settings"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/hostdir"
)

// silent is a registry that accepts connections and never answers.
type silent struct {
	net.Listener
	connections atomic.Int64
}

func newSilent(t *testing.T) *silent {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silent{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return s
}

// obstacle is a situation in which a pivot cannot succeed, whatever a registry answers.
type obstacle struct {
	name    string
	prepare func(*testing.T, *hostdir.Host)
	ask     string // more of the MachineConfig's spec
	rebase  func(*day2.Rebase)
	kind    fault.Kind
	want    string
	not     []string // commands, or kinds of image references, that do not meet or cannot foresee the obstacle
}

// immutable makes a directory immutable until the test ends.
func immutable(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("chattr", "+i", dir).CombinedOutput(); err != nil {
		need.Lacking(t, fmt.Sprintf("needs a file system with immutable directories: %v: %s", err, out))
	}
	t.Cleanup(func() { _ = exec.Command("chattr", "-i", dir).Run() })
}

func obstacles() []obstacle {
	write := func(path, content string) func(*testing.T, *hostdir.Host) {
		return func(_ *testing.T, h *hostdir.Host) { h.Write(path, []byte(content)) }
	}
	append7 := func(r *day2.Rebase) { r.Append = []string{"loglevel=7"} }
	asked7 := `,"kernelArguments":["loglevel=7"]`
	return []obstacle{
		{name: "not booted from ostree", prepare: func(_ *testing.T, h *hostdir.Host) { _ = os.Remove(h.Path("/run/ostree-booted")) },
			kind: fault.Refused, want: "not booted from an ostree"},
		{name: "no boot entry", prepare: func(_ *testing.T, h *hostdir.Host) { _ = os.RemoveAll(h.Path("/boot/loader/entries")) },
			kind: fault.Refused, want: "has no boot entry"},
		{name: "journal that cannot be used", prepare: write("/var/lib/pivot/journal.json", "{"),
			kind: fault.Refused, want: "cannot use journal", not: []string{"plan"}},
		{name: "journal that cannot be written", prepare: func(t *testing.T, h *hostdir.Host) {
			h.Write("/var/lib/x", nil)
			immutable(t, h.Path("/var/lib"))
		}, kind: fault.CannotWrite, want: "cannot write journal", not: []string{"plan"}, ask: asked7, rebase: append7},
		{name: "wrong setting", prepare: write(settings.Path, "reboot-method=fast\n"),
			kind: fault.BadInput, want: "firstboot.conf, line 1", not: []string{"plan"}},
		{name: "FIPS mismatch", prepare: write("/proc/sys/crypto/fips_enabled", "1\n"), ask: asked7,
			kind: fault.Refused, want: "FIPS mode on", not: []string{"plan", "rebase"}},
		{name: "unified kernel image", prepare: write("/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "x"),
			ask: asked7, rebase: append7, kind: fault.Refused, want: "unified kernel image", not: []string{"plan"}},
		{name: "refused argument", ask: `,"kernelArguments":["root=/dev/sda"]`, rebase: func(r *day2.Rebase) { r.Append = []string{"root=/dev/sda"} },
			kind: fault.BadInput, want: "root="},
		{name: "too many arguments", ask: `,"kernelArguments":["x=` + strings.Repeat("a", 2500) + `"]`,
			rebase: func(r *day2.Rebase) { r.Append = []string{"x=" + strings.Repeat("a", 2500)} },
			kind:   fault.BadInput, want: "bytes"},
		{name: "policy of arguments that cannot be read", prepare: write("/etc/pivot/kernel-args.policy", "nonsense\n"),
			ask: asked7, rebase: append7, kind: fault.BadInput, want: "kernel-args.policy"},
		{name: "CPUs that are not there", prepare: func(t *testing.T, h *hostdir.Host) { pin(t, h, "0-9") }, ask: asked7,
			rebase: append7, kind: fault.BadInput, want: "the machine has no CPU 4-9"},
		{name: "CPUs that will be offline", prepare: func(t *testing.T, h *hostdir.Host) { pin(t, h, "0,3") }, ask: `,"kernelArguments":["maxcpus=2"]`,
			rebase: func(r *day2.Rebase) { r.Append = []string{"maxcpus=2"} }, kind: fault.BadInput, want: "CPU 3 will be offline"},
		{name: "CPUs asked for that are not there", rebase: func(r *day2.Rebase) {
			_, cpus, _ := pinning.ParseAssignment("management=0-9")
			r.Pinning = pinning.Workloads{"management": cpus}
		}, kind: fault.BadInput, want: "the machine has no CPU 4-9", not: []string{"firstboot"}},
		{name: "packages are layered", prepare: func(_ *testing.T, h *hostdir.Host) { h.Layer("strace;") },
			kind: fault.Refused, want: "layered", not: []string{"plan", "tag"}},
		{name: "bubblewrap is missing", prepare: func(_ *testing.T, h *hostdir.Host) {
			h.Ostree.Features = "  - selinux\n"
			h.Policy()
		}, kind: fault.Refused, want: "has no /usr/bin/bwrap", not: []string{"plan", "tag"}},
		{name: "repository that cannot be read", prepare: write("/sysroot/ostree/repo/config", "[core]\nmode=archive\n"),
			kind: fault.Internal, want: "repository", not: []string{"plan", "tag"}},
		{name: "repository that cannot be written", prepare: func(t *testing.T, h *hostdir.Host) { immutable(t, h.Path("/sysroot/ostree/repo/objects")) },
			kind: fault.CannotWrite, want: "repository", not: []string{"plan", "tag"}},
		{name: "signature policy that rejects", prepare: write("/etc/containers/policy.json", `{"default":[{"type":"reject"}]}`),
			kind: fault.Refused, want: "signature policy rejects", not: []string{"plan/digest"}},
		{name: "signature policy that cannot be read", prepare: write("/etc/containers/policy.json", `{"default":`),
			kind: fault.Refused, want: "cannot read the signature policy", not: []string{"plan/digest"}},
		{name: "registries.conf that cannot be read", prepare: write("/etc/containers/registries.conf", "="),
			kind: fault.Refused, want: "registries configuration", not: []string{"plan/digest"}},
		{name: "blocked registry", prepare: write("/etc/containers/registries.conf", "[[registry]]\nlocation=\"REGISTRY\"\nblocked=true\n"),
			kind: fault.Refused, want: "blocked", not: []string{"plan/digest"}},
		{name: "pull secret that cannot be read", prepare: write("/etc/ostree/auth.json", "{"),
			kind: fault.Refused, want: "auth.json", not: []string{"plan/digest"}},
	}
}

// TestNothingIsAskedInVain: errors that can be found without the network are
// reported before any request to the registry, by each command, by digest and by tag.
func TestNothingIsAskedInVain(t *testing.T) {
	for _, w := range obstacles() {
		t.Run(w.name, func(t *testing.T) {
			registry := newSilent(t)
			h := hostdir.New(t) // no command changes it
			if w.prepare != nil {
				w.prepare(t, h)
			}
			for by, name := range map[string]string{"digest": "@sha256:" + strings.Repeat("a", 64), "tag": ":latest"} {
				for _, story := range []string{"firstboot", "rebase", "plan"} {
					if slices.ContainsFunc(w.not, func(not string) bool { return not == story || not == by || not == story+"/"+by }) {
						continue
					}
					err := runStory(t, h, story, registry.Addr().String()+"/os"+name, w)
					if err == nil || fault.KindOf(err) != w.kind || !strings.Contains(err.Error(), w.want) {
						t.Errorf("%s by %s: error %v, want %q", story, by, err, w.want)
					}
					if n := registry.connections.Swap(0); n != 0 {
						t.Errorf("%s by %s: %d connections to the registry", story, by, n)
					}
				}
			}
		})
	}
}

// runStory runs one of firstboot, rebase and plan.
func runStory(t *testing.T, h *hostdir.Host, story, image string, w obstacle) error {
	t.Helper()
	if conf := h.Read("/etc/containers/registries.conf"); conf != nil {
		h.Write("/etc/containers/registries.conf", []byte(strings.Replace(string(conf), "REGISTRY", strings.Split(image, "/")[0], 1)))
	}
	m := newMachine(t, h)
	m.Puller.Patience = 50 * time.Millisecond
	m.Retry.Bound = time.Second
	if story == "firstboot" {
		h.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"osImageURL":"`+image+`","fips":false`+w.ask+`}}`))
		b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
		return b.Run(t.Context())
	}
	r := day2.Rebase{Machine: m, Image: image}
	if w.rebase != nil {
		w.rebase(&r)
	}
	if story == "plan" {
		_, err := r.Plan(t.Context(), day2.RunOptions{})
		return err
	}
	_, err := r.Run(t.Context(), day2.RunOptions{})
	return err
}
