package pods_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pods"
)

// managedPod is a static pod that chooses the workload management; pinned is what it becomes.
const (
	managedPod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd # ours\n  annotations:\n    target.workload.openshift.io/management: '{}'\n" +
		"spec:\n  containers:\n  - name: etcd\n    resources:\n      requests:\n        cpu: 400m\n        memory: 1Mi\n"
	pinned = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd # ours\n  annotations:\n    target.workload.openshift.io/management: '{}'\n" +
		"    resources.workload.openshift.io/etcd: '{\"cpushares\":409}'\n" +
		"spec:\n  containers:\n  - name: etcd\n    resources:\n      requests:\n        memory: 1Mi\n"
	other = "apiVersion: v1\nkind: Pod\nmetadata: {name: other, annotations: {resources.workload.openshift.io/x: kept}}\nspec: {containers: [{name: x}]}\n"
)

// machine is a machine with a Writer.
type machine struct {
	*testing.T
	*pods.StaticPods
	notes []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t}
	m.StaticPods = &pods.StaticPods{
		Root: root, From: pods.SourceDir, To: pods.ManifestDir, Types: []string{"management"}, Disk: hostfiles.OS{},
		Note: func(note string) { m.notes = append(m.notes, note) },
	}
	m.write(pods.SourceDir+"/etcd.yaml", managedPod)
	return m
}

func (m *machine) write(path, content string) {
	m.Helper()
	path = filepath.Join(m.Root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) remove(path string) {
	m.Helper()
	if err := os.Remove(filepath.Join(m.Root, path)); err != nil {
		m.Fatal(err)
	}
}

// have returns what kubelet would read.
func (m *machine) have() map[string]string {
	m.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(m.Root, pods.ManifestDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(m.Root, pods.ManifestDir, e.Name()))
		if err != nil {
			m.Fatal(err)
		}
		found[e.Name()] = string(data)
	}
	return found
}

// update updates the pods, and checks what is there then; failures are parts of the errors, in order.
func (m *machine) update(want map[string]string, failures ...string) {
	m.Helper()
	m.notes = nil
	errs := m.Update()
	for i, err := range errs {
		if i >= len(failures) || !strings.Contains(err.Error(), failures[i]) {
			m.Errorf("error %v, want %q", err, failures)
		}
	}
	if len(errs) < len(failures) {
		m.Errorf("errors %v, want %q", errs, failures)
	}
	if got := m.have(); !maps.Equal(got, want) {
		m.Errorf("there are %q, want %q", got, want)
	}
}

// settled requires that another run changes nothing.
func (m *machine) settled() {
	m.Helper()
	disk := m.Disk
	m.Disk = cut{disk, new(int)}
	before := m.have()
	m.update(before)
	m.Disk = disk
}

// TestUpdate is the life of static pods: they come, change, and go.
func TestUpdate(t *testing.T) {
	m := newMachine(t)
	m.write(pods.SourceDir+"/other.yaml", other)
	m.write(pods.SourceDir+"/.hidden", "no manifest")
	m.write(pods.SourceDir+"/directory/etcd.yaml", managedPod)
	m.write(pods.ManifestDir+"/theirs.yaml", other)
	if err := os.Chmod(filepath.Join(m.Root, pods.SourceDir, "etcd.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.update(map[string]string{"etcd.yaml": pinned, "other.yaml": other, "theirs.yaml": other})
	if info, err := os.Stat(filepath.Join(m.Root, pods.ManifestDir, "etcd.yaml")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode is %v (%v)", info.Mode(), err)
	}
	m.settled()

	m.write(pods.SourceDir+"/etcd.yaml", strings.Replace(managedPod, "400m", "1", 1))
	m.update(map[string]string{"etcd.yaml": strings.Replace(pinned, "409", "1024", 1), "other.yaml": other, "theirs.yaml": other})
	m.write(pods.SourceDir+"/etcd.yaml", managedPod)

	m.Types = nil // the pinning file is gone
	m.update(map[string]string{"etcd.yaml": managedPod, "other.yaml": other, "theirs.yaml": other})
	m.Types = []string{"other"}
	m.update(map[string]string{"etcd.yaml": managedPod, "other.yaml": other, "theirs.yaml": other})
	if !slices.Contains(m.notes, pods.SourceDir+"/etcd.yaml is not changed: this machine has no workload management") {
		t.Errorf("notes %q", m.notes)
	}
	m.Types = []string{"management", "other"}
	m.update(map[string]string{"etcd.yaml": pinned, "other.yaml": other, "theirs.yaml": other})

	m.remove(pods.SourceDir + "/etcd.yaml")
	m.remove(pods.ManifestDir + "/other.yaml") // by hand: it is written again
	m.update(map[string]string{"other.yaml": other, "theirs.yaml": other})
	if err := os.RemoveAll(filepath.Join(m.Root, pods.SourceDir)); err != nil {
		t.Fatal(err)
	}
	m.update(map[string]string{"theirs.yaml": other})
	if _, err := os.Lstat(filepath.Join(m.Root, pods.RecordPath)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a record of nothing is left: %v", err)
	}
	m.settled()
}

// TestForeign: what something else has written, or has changed, is refused by its name, and the others are done.
func TestForeign(t *testing.T) {
	m := newMachine(t)
	m.write(pods.SourceDir+"/other.yaml", other)
	m.write(pods.ManifestDir+"/etcd.yaml", "theirs")
	m.update(map[string]string{"etcd.yaml": "theirs", "other.yaml": other}, "cannot write the static pod /etc/kubernetes/manifests/etcd.yaml: something else has written")
	m.remove(pods.ManifestDir + "/etcd.yaml")
	m.update(map[string]string{"etcd.yaml": pinned, "other.yaml": other})

	m.write(pods.ManifestDir+"/etcd.yaml", "changed")
	m.update(map[string]string{"etcd.yaml": "changed", "other.yaml": other}, "/etc/kubernetes/manifests/etcd.yaml")
	m.remove(pods.SourceDir + "/etcd.yaml")
	m.update(map[string]string{"etcd.yaml": "changed", "other.yaml": other})
	if !slices.Contains(m.notes, "/etc/kubernetes/manifests/etcd.yaml stays: something else has changed it") {
		t.Errorf("notes %q", m.notes)
	}
	m.settled()

	// One that is the same is nobody's: it is not removed with the source.
	m.remove(pods.ManifestDir + "/etcd.yaml")
	m.write(pods.SourceDir+"/etcd.yaml", managedPod)
	m.write(pods.ManifestDir+"/etcd.yaml", pinned)
	m.settled()
	m.remove(pods.SourceDir + "/etcd.yaml")
	m.update(map[string]string{"etcd.yaml": pinned, "other.yaml": other})

	m.write(pods.SourceDir+"/etcd.yaml", managedPod)
	m.remove(pods.ManifestDir + "/etcd.yaml")
	if err := os.Symlink("/dev/null", filepath.Join(m.Root, pods.ManifestDir, "etcd.yaml")); err != nil {
		t.Fatal(err)
	}
	m.update(map[string]string{"etcd.yaml": "", "other.yaml": other}, "something else has written")
}

// TestBad: a pod that cannot be used is named and stays as it was written before; the others are done.
func TestBad(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"no YAML":       {"a: [", "/etc/pivot/static-pods/etcd.yaml:1: error: $: it is not YAML"},
		"no pod":        {strings.Replace(managedPod, "kind: Pod", "kind: Node", 1), `it is "Node" of "v1", not a Pod of v1`},
		"two workloads": {strings.Replace(managedPod, "spec:", "    target.workload.openshift.io/b: '{}'\nspec:", 1), "more than one workload"},
		"no amount":     {strings.Replace(managedPod, "400m", "much", 1), `cannot parse quantity "much"`},
		"too large":     {strings.Repeat(" ", 10<<20+1), "kubelet reads no manifest of more than"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.update(map[string]string{"etcd.yaml": pinned})
			m.write(pods.SourceDir+"/etcd.yaml", c.content)
			m.write(pods.SourceDir+"/other.yaml", other)
			m.update(map[string]string{"etcd.yaml": pinned, "other.yaml": other}, c.want)
			m.write(pods.SourceDir+"/etcd.yaml", managedPod)
			m.settled()
		})
	}
	// A pod that chooses nothing is copied, whatever it is.
	m := newMachine(t)
	const anchors = "apiVersion: v1\nkind: Pod\na: &x {b: 1}\nc: *x\n"
	m.write(pods.SourceDir+"/etcd.yaml", anchors)
	m.update(map[string]string{"etcd.yaml": anchors})
	m.Types = nil
	m.write(pods.SourceDir+"/etcd.yaml", "a: [")
	m.update(map[string]string{"etcd.yaml": "a: ["})
}

// TestUnknown: without known types, what runs continues, and what is missing starts.
func TestUnknown(t *testing.T) {
	m := newMachine(t)
	m.update(map[string]string{"etcd.yaml": pinned})
	m.Types, m.Unknown = nil, errors.New("the pinning file is bad")
	m.write(pods.SourceDir+"/etcd.yaml", strings.Replace(managedPod, "400m", "1", 1))
	m.write(pods.SourceDir+"/new.yaml", managedPod)
	m.update(map[string]string{"etcd.yaml": pinned, "new.yaml": managedPod}, "the pinning file is bad")
	m.Types, m.Unknown = []string{"management"}, nil
	m.update(map[string]string{"etcd.yaml": strings.Replace(pinned, "409", "1024", 1), "new.yaml": pinned})
}

// TestDirectories: a directory that others can write would make everybody root.
func TestDirectories(t *testing.T) {
	m := newMachine(t)
	for from, to := range map[string]string{"pods": pods.ManifestDir, "/etc/../pods": pods.ManifestDir, pods.ManifestDir: pods.ManifestDir} {
		m.From, m.To = from, to
		if errs := m.Update(); len(errs) != 1 || fault.KindOf(errs[0]) != fault.Usage {
			t.Errorf("from %s to %s: %v", from, to, errs)
		}
	}
	m.From, m.To = pods.SourceDir, "/etc/open/manifests"
	if err := os.MkdirAll(filepath.Join(m.Root, "etc/open/manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(m.Root, "etc/open"), 0o777); err != nil {
		t.Fatal(err)
	}
	if errs := m.Update(); len(errs) != 1 || fault.KindOf(errs[0]) != fault.Refused {
		t.Errorf("an open directory: %v", errs)
	}
	m.To = "/etc/kubernetes/elsewhere"
	m.update(map[string]string{})
	m.To = pods.ManifestDir // what was written elsewhere is removed
	m.update(map[string]string{"etcd.yaml": pinned})
	if left, err := os.ReadDir(filepath.Join(m.Root, "etc/kubernetes/elsewhere")); err != nil || len(left) > 0 {
		t.Errorf("%v is left elsewhere (%v)", left, err)
	}
}

// TestRecord: a record that cannot be used, as that of a newer pivot, is not written over.
func TestRecord(t *testing.T) {
	for _, text := range []string{"{", `{"format":2}`, `{"format":1,"files":7}`} {
		m := newMachine(t)
		m.write(pods.RecordPath, text)
		m.update(map[string]string{}, "cannot use the record of static pods")
		if data, err := os.ReadFile(filepath.Join(m.Root, pods.RecordPath)); err != nil || string(data) != text {
			t.Errorf("the record is %s (%v)", data, err)
		}
	}
}

// errCut is the error of each effect after the last one.
var errCut = errors.New("cut")

// cut is a disk that fails after a number of effects.
type cut struct {
	hostfiles.Disk
	left *int
}

func (c cut) effect(do func() error) error {
	if *c.left == 0 {
		return errCut
	}
	*c.left--
	return do()
}

func (c cut) Mkdir(path string, mode fs.FileMode) error {
	return c.effect(func() error { return c.Disk.Mkdir(path, mode) })
}

func (c cut) Make(path string, f hostfiles.File, label string) error {
	return c.effect(func() error { return c.Disk.Make(path, f, label) })
}

func (c cut) Write(path string, content []byte, mode fs.FileMode) error {
	return c.effect(func() error { return c.Disk.Write(path, content, mode) })
}

func (c cut) Rename(from, to string) error {
	return c.effect(func() error { return c.Disk.Rename(from, to) })
}

func (c cut) Remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return c.effect(func() error { return c.Disk.Remove(path) })
}

// TestKilled ends the program after each of its effects. Each file is the old one or the new at any time, and
// the next run completes what was begun.
func TestKilled(t *testing.T) {
	before := map[string]string{"a.yaml": pinned, "b.yaml": other, "gone.yaml": other, "theirs.yaml": other}
	after := map[string]string{"a.yaml": strings.Replace(pinned, "409", "1024", 1), "b.yaml": pinned, "new.yaml": other, "theirs.yaml": other}
	for effects := 0; ; effects++ {
		m := newMachine(t)
		m.remove(pods.SourceDir + "/etcd.yaml")
		m.write(pods.ManifestDir+"/theirs.yaml", other)
		m.write(pods.SourceDir+"/a.yaml", managedPod)
		m.write(pods.SourceDir+"/b.yaml", other)
		m.write(pods.SourceDir+"/gone.yaml", other)
		m.update(before)
		m.write(pods.SourceDir+"/a.yaml", strings.Replace(managedPod, "400m", "1", 1))
		m.write(pods.SourceDir+"/b.yaml", managedPod)
		m.write(pods.SourceDir+"/new.yaml", other)
		m.remove(pods.SourceDir + "/gone.yaml")
		left := effects
		m.Disk = cut{hostfiles.OS{}, &left}
		whole := len(m.Update()) == 0
		for name, content := range m.have() {
			if content != before[name] && content != after[name] {
				t.Errorf("after %d effects %s is %q", effects, name, content)
			}
		}
		m.Disk = hostfiles.OS{}
		m.update(after)
		m.settled()
		if left, err := filepath.Glob(filepath.Join(m.Root, pods.ManifestDir, ".*")); err != nil || len(left) > 0 {
			t.Errorf("after %d effects %q is left (%v)", effects, left, err)
		}
		if whole {
			if effects < 10 {
				t.Errorf("only %d effects", effects)
			}
			return
		}
	}
}
