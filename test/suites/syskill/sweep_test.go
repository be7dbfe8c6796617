package syskill_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/firstboot"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/pinning"
	"machine-pivot/pivot"
	"machine-pivot/test/suites/booted"
	"machine-pivot/test/suites/syskill"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

func TestMain(m *testing.M) {
	if os.Getenv(booted.Env) != "" {
		fmt.Fprintln(os.Stderr, "cannot become the program:", syskill.Child(os.Args[1:]))
		os.Exit(125)
	}
	if slices.Contains(os.Args, asEffects) {
		if err := doEffects(); err != nil {
			fmt.Fprintln(os.Stderr, "cannot change a file:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The approximate number of kills in a short run: in a whole first boot, and during an image
// import.
const (
	short = 30
	few   = 8
)

// long reports whether to try all points instead of a sample.
func long() bool { return os.Getenv("PIVOT_SWEEP") == "long" }

// TestKills (P3, P25, P28) kills the real binary, and the real ostree that it runs, at system
// calls. Afterwards the default must be the old system or the new one, complete, and the next run,
// in the same boot or the next, must complete the first boot.
func TestKills(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole binary")
	}
	changes := oscontainer.WithDerived(oscontainer.File("usr/share/derived", "derived"), oscontainer.File("etc/derived.conf", "derived"))
	for name, image := range map[string]func(*hostdir.Host) v1.Image{
		"undivided":      nil,
		"derived layers": func(h *hostdir.Host) v1.Image { return h.NativeImage(oscontainer.WithChunks(3), changes) },
		"plain":          func(h *hostdir.Host) v1.Image { return h.PlainImage(3, changes) },
	} {
		t.Run(name, func(t *testing.T) {
			w, start := newWorld(t, image), time.Now()
			pivoted := w.machine(t, w.host.Physical())
			effects := pivoted.run(t, syskill.Stop{}).Effects
			closed := w.machine(t, pivoted.Physical)
			closing := closed.run(t, syskill.Stop{}).Effects
			if image == nil || long() {
				w.killAll(t, "pivot", w.host.Physical(), effects, points(effects, short))
				w.killAll(t, "close", pivoted.Physical, closing, points(closing, short))
			} else {
				w.killAll(t, "import", w.host.Physical(), effects, importing(effects))
			}
			if name == "derived layers" && w.midway == 0 {
				t.Error("no kill came between two layers")
			}
			// The number of writes varies between runs: the last points may be beyond the end.
			if w.killed < w.cases*9/10 || w.killed == 0 {
				t.Errorf("only %d kills in %d cases", w.killed, w.cases)
			}
			t.Logf("swept kills of the real program, %s: %d effects up to the reboot, %d after it, %d cases, %d kills, %d of them between two layers, %.0f s",
				name, len(effects), len(closing), w.cases, w.killed, w.midway, time.Since(start).Seconds())
		})
	}
}

// TestKillsWithPackages (P80) does the same with the stand-in for rpm-ostree, which deploys and
// changes packages. It is killed together with the program.
func TestKillsWithPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole binary")
	}
	need.Program(t, "createrepo_c")
	w, start := newWorld(t, func(h *hostdir.Host) v1.Image { return h.NativeImage() }), time.Now()
	w.engine = "rpm-ostree"
	w.programs = withRpmOstree(t, w.programs)
	packages := []oscontainer.RPM{{Name: "kernel-rt-modules", Version: "6.1"}, {Name: "kernel-rt-modules-extra", Version: "6.1"}, {
		Name: "kernel-rt-core", Version: "6.1", Files: map[string][]byte{
			"/usr/lib/modules/" + realtime + "/vmlinuz": []byte("kernel"), "/usr/lib/modules/" + realtime + "/initramfs.img": []byte("initramfs"),
		},
	}}
	img, err := oscontainer.Extensions(packages, oscontainer.WithWorkDir(t.TempDir()))
	must(t, err)
	w.want.KernelType, w.want.ExtensionsImage = "realtime", w.host.Push(img)
	w.ask(t)
	effects := w.machine(t, w.host.Physical()).run(t, syskill.Stop{}).Effects
	at := points(effects, few)
	if long() { // most effects are the stand-in's
		at = everyNth(at, 12)
	}
	w.killAll(t, "packages", w.host.Physical(), effects, at)
	if w.killed < w.cases*9/10 || w.killed == 0 {
		t.Errorf("only %d kills in %d cases", w.killed, w.cases)
	}
	t.Logf("swept kills of the real program, with packages: %d effects up to the reboot, %d cases, %d kills, %.0f s",
		len(effects), w.cases, w.killed, time.Since(start).Seconds())
}

func everyNth(all []int, n int) (some []int) {
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// realtime is the kernel release in the packages.
const realtime = "6.1+rt"

// withRpmOstree returns a copy of the programs directory with the stand-in for rpm-ostree added.
func withRpmOstree(t *testing.T, programs string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(programs)); err != nil {
		t.Fatal(err)
	}
	script.Build(t, filepath.Join(dir, "rpm-ostree"), "machine-pivot/test/worlds/rpmostree/rpm-ostree")
	return dir
}

// killAll kills machines that start from a sysroot, each at one of the effects. The next run must
// not fetch layers again that the killed one had imported.
func (w *world) killAll(t *testing.T, name, sysroot string, effects []string, at []int) {
	for n, at := range at {
		t.Run(fmt.Sprintf("%s %d %s", name, at, effects[at-1]), func(t *testing.T) {
			m := w.machine(t, sysroot)
			w.cases++
			if r := m.run(t, syskill.Stop{At: at, Signal: syscall.SIGKILL}); r.Killed {
				w.killed++
			} else {
				t.Logf("it had only %d effects", len(r.Effects))
			}
			m.expectWhole(t)
			if n%2 == 1 {
				m.boot(t)
			}
			kept, since := m.refs(t, "blob"), w.host.Registry.Requests()
			if len(kept) > 0 && len(m.refs(t, "image")) == 0 {
				w.midway++
			}
			m.run(t, syskill.Stop{})
			for _, digest := range w.host.Registry.Pulled(since) {
				if slices.Contains(kept, strings.Replace(digest, ":", "_3A_", 1)) {
					t.Errorf("layer %s was fetched again", digest)
				}
			}
			m.arrive(t)
		})
	}
}

// TestTerminate sends SIGTERM instead: the program completes or undoes the deployment, never leaves
// it half done, and exits by itself.
func TestTerminate(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole binary")
	}
	w, start := newWorld(t, nil), time.Now()
	effects := w.machine(t, w.host.Physical()).run(t, syskill.Stop{}).Effects
	all := points(effects, short)[1:] // at the first, its own exec, it cannot handle signals yet
	finished := 0
	for i := 0; i < len(all); i += 3 {
		t.Run(fmt.Sprintf("%d %s", all[i], effects[all[i]-1]), func(t *testing.T) {
			m := w.machine(t, w.host.Physical())
			m.run(t, syskill.Stop{At: all[i], Signal: syscall.SIGTERM})
			m.expectWhole(t)
			if _, err := os.Stat(filepath.Join(m.RunDir, "ostree/staged-deployment")); err == nil {
				t.Error("something is left staged")
			}
			r, err := pivot.Journal{Path: filepath.Join(m.Var, "lib/pivot/journal.json")}.Load()
			must(t, err)
			if isNew := version(m.next(t).Path) == "B.2"; isNew != (r.Phase == pivot.PhaseCommitted) {
				t.Errorf("the next boot is the new system: %v, the journal says %s", isNew, r.Phase)
			} else if isNew {
				finished++
			}
			m.run(t, syskill.Stop{})
			m.arrive(t)
		})
	}
	t.Logf("swept SIGTERM: %d effects, %d cases, of which it finished %d and took back the others, %.0f s",
		len(effects), (len(all)+2)/3, finished, time.Since(start).Seconds())
}

// points returns the effects to kill at: all of them in a long run. Else it is at most that many, sampled where an effect
// differs from the one before (ten unlinks in a row count once).
func points(effects []string, most int) []int {
	var all, begin []int
	for i := range effects {
		all = append(all, i+1)
		if i == 0 || effects[i] != effects[i-1] {
			begin = append(begin, i+1)
		}
	}
	if long() {
		return all
	}
	var some []int
	for i := 0; i < len(begin); i += (len(begin) + most - 1) / most {
		some = append(some, begin[i])
	}
	return some
}

// importing returns points between the first syncfs, which makes the first layer durable, and the
// run of ostree after it.
func importing(effects []string) (at []int) {
	from := slices.Index(effects, "syncfs")
	to := slices.Index(effects[from:], "exec")
	for _, p := range points(effects[from:from+to], few) {
		at = append(at, from+p)
	}
	return at
}

// world is what all machines of a test share.
type world struct {
	host     *hostdir.Host
	want     bootlab.Want
	programs string
	engine   string // "": the program chooses
	layers   int    // number of layers of the image; 0: undivided

	cases  int
	killed int // number of cases that were killed
	midway int // number of kills that left only some layers of an image
}

// newWorld serves the next system as an image; nil means undivided.
func newWorld(t *testing.T, image func(*hostdir.Host) v1.Image) *world {
	t.Helper()
	w := &world{host: hostdir.New(t), programs: script.Programs(t)}
	if image != nil {
		img := image(w.host)
		w.host.Serve(img)
		layers, err := img.Layers()
		must(t, err)
		w.layers = len(layers)
	}
	set, err := pinning.ParseCPUSet("0")
	must(t, err)
	w.want = bootlab.Want{Image: w.host.Image, Kargs: []string{"nosmt loglevel=7"}, Pinning: pinning.Workloads{"management": set}}
	w.ask(t)
	return w
}

// ask writes the encapsulated MachineConfig for w.want.
func (w *world) ask(t *testing.T) {
	t.Helper()
	data, err := w.want.Encapsulated()
	must(t, err)
	w.host.Write(firstboot.EncapsulatedPath, data)
}

// machine is a machine that is killed and restarted.
type machine struct {
	*booted.Machine
	w *world
}

// machine returns a booted machine with a copy of the sysroot.
func (w *world) machine(t *testing.T, sysroot string) *machine {
	t.Helper()
	dir := t.TempDir()
	physical := filepath.Join(dir, "physical")
	if out, err := exec.Command("cp", "-a", sysroot, physical).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { // ostree marks deployments immutable
		_ = exec.Command("sh", "-c", "chattr -f -i "+physical+"/ostree/deploy/os/deploy/*.[0-9]").Run()
	})
	m := &machine{w: w, Machine: booted.New(dir, physical, w.programs)}
	m.boot(t)
	return m
}

func (m *machine) boot(t *testing.T) {
	t.Helper()
	must(t, m.Start())
}

func (m *machine) run(t *testing.T, stop syskill.Stop) syskill.Result {
	t.Helper()
	return m.pivot(t, stop, "firstboot", "--no-reboot", "--engine="+cmp.Or(m.w.engine, "auto"))
}

// pivot runs a command of the program. It must succeed unless it is stopped.
func (m *machine) pivot(t *testing.T, stop syskill.Stop, argv ...string) syskill.Result {
	t.Helper()
	r, err := syskill.Run(m.World, stop, argv...)
	must(t, err)
	terminated := stop.Signal == syscall.SIGTERM && r.Status == 69 // try again
	if !r.Killed && r.Status != 0 && !terminated {
		t.Fatalf("exit status %d\n%s", r.Status, r.Output)
	}
	return r
}

// arrive reboots, and checks that the new system runs and the first boot is closed.
func (m *machine) arrive(t *testing.T) {
	t.Helper()
	m.boot(t)
	m.run(t, syskill.Stop{})
	m.expectWhole(t)
	if version(m.Root) != "B.2" {
		t.Error("the old system runs")
	}
	if left, err := filepath.Glob(m.Root + firstboot.EncapsulatedPath + "*"); err != nil || !slices.Equal(left, []string{m.Root + firstboot.EncapsulatedPath + ".bak"}) {
		t.Errorf("the first boot is not closed: %q, %v", left, err)
	}
	r, err := pivot.Journal{Path: filepath.Join(m.Var, "lib/pivot/journal.json")}.Load()
	if err != nil || r.Phase != pivot.PhaseDone {
		t.Errorf("journal %+v, %v, want done", r, err)
	}
}

func (m *machine) next(t *testing.T) ostree.Deployment {
	t.Helper()
	next, err := m.Next()
	must(t, err)
	return next
}

// refs returns the repository's refs for container images: kind is "image", or "blob" for layers.
func (m *machine) refs(t *testing.T, kind string) (names []string) {
	t.Helper()
	refs, err := filepath.Glob(filepath.Join(m.repo(), "refs/heads/ostree/container", kind, "*"))
	must(t, err)
	for _, ref := range refs {
		names = append(names, filepath.Base(ref))
	}
	return names
}

func (m *machine) repo() string { return filepath.Join(m.Physical, "ostree/repo") }

// referred returns the repository to check. With rpm-ostree it is a copy pruned to what refs reach. If "ostree commit"
// is killed, libostree may leave a commit object without all of its contents, which its next cleanup removes.
func (m *machine) referred(t *testing.T) string {
	t.Helper()
	if m.w.engine != "rpm-ostree" {
		return m.repo()
	}
	repo := filepath.Join(t.TempDir(), "repo")
	must(t, exec.Command("cp", "-al", m.repo(), repo).Run())
	_, err := ostreetree.Ostree("prune", "--refs-only", "--repo="+repo)
	must(t, err)
	return repo
}

// expectWhole checks that the running and the default deployment each are the old or the new
// system, and that the repository passes ostree fsck without partial commits. An image may have a
// ref only if all of its layers have one.
func (m *machine) expectWhole(t *testing.T) {
	t.Helper()
	if said, err := ostreetree.Ostree("fsck", "--repo="+m.referred(t)); err != nil || strings.Contains(said, "partial") {
		t.Errorf("the repository is not whole: %s, %v", said, err)
	}
	if layers := m.refs(t, "blob"); len(m.refs(t, "image")) > 0 && len(layers) != m.w.layers {
		t.Errorf("the image has a ref, %d of its %d layers have", len(layers), m.w.layers)
	}
	next := m.next(t)
	isNew := version(next.Path) == "B.2"
	if strings.Contains(next.Entry.Options, " nosmt loglevel=7") != isNew {
		t.Errorf("a mixture: version %s with %q", version(next.Path), next.Entry.Options)
	}
	for _, root := range []string{next.Path, m.Root} {
		if _, err := os.Stat(root + "/usr/lib/modules/" + realtime); m.w.want.KernelType != "" && (err == nil) != (version(root) == "B.2") {
			t.Errorf("a mixture: version %s, and of its kernel: %v", version(root), err)
		}
		for _, f := range m.w.want.PinningFiles() {
			content, err := os.ReadFile(root + f.Path)
			if (err == nil && string(content) == string(f.Content)) != (version(root) == "B.2") {
				t.Errorf("a mixture: version %s with %s %q (%v)", version(root), f.Path, content, err)
			}
		}
		if entries, _ := os.ReadDir(root + "/etc/crio/crio.conf.d"); len(entries) > 1 {
			t.Errorf("stray files: %v", entries)
		}
	}
}

func version(root string) string {
	text, _ := os.ReadFile(filepath.Join(root, "usr/lib/os-release"))
	_, after, _ := strings.Cut(string(text), "VERSION=")
	v, _, _ := strings.Cut(after, "\n")
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
