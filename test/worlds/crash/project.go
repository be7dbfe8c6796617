package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
)

// Switching is a simulated machine that boots several deployments in turn, forward and back. Each
// carries entries for the shared /var. The projection is the product's code.
type Switching struct {
	power
	Boots int
	State State

	disk    *disk
	dir     string
	sets    [][]hostfiles.File // the entries that each deployment carries
	runs    int                // index of the running deployment, in boot order
	next    int                // index of the default deployment
	settled bool               // the projection of this boot is done
	hasty   bool               // see Hasty
	loss    Loss
}

// Hasty is a program broken on purpose: it projects the entries of the next system before that is
// committed.
func Hasty(m *Switching) { m.hasty = true }

// UnsyncedVar is a program broken on purpose: it syncs no file in /var.
func UnsyncedVar(m *Switching) { m.disk.Lying = true }

// NewSwitching creates the machine in an empty directory. points are the crashes that it will
// suffer.
func NewSwitching(dir string, points []Point, variants ...func(*Switching)) (*Switching, error) {
	m := &Switching{dir: dir, sets: switched()}
	m.points = points
	m.disk = &disk{power: &m.power, now: map[string]*inode{}, durable: map[string]*inode{}}
	for _, change := range variants {
		change(m)
	}
	err := os.MkdirAll(filepath.Join(dir, "var/lib"), 0o755)
	for _, f := range ownOfVar() {
		n := &inode{content: f.Content, durable: f.Content, mode: f.Mode, target: f.Target, uid: f.UID, gid: f.GID}
		if f.Kind == hostfiles.KindDirectory {
			n.mode |= fs.ModeDir
		}
		name := filepath.Join(dir, f.Path)
		m.disk.now[name], m.disk.durable[name] = n, n
		err = errors.Join(err, n.write(name))
	}
	for i, set := range m.sets {
		err = errors.Join(err, m.deploy(m.root(i), set))
	}
	return m, err
}

// ownOfVar returns the machine's own entries in /var.
func ownOfVar() []hostfiles.File {
	own := hostfiles.NewFile("/var/data/own", 0o640, []byte("own"))
	own.UID = 7
	return []hostfiles.File{hostfiles.NewDirectory("/var/data", 0o755), own, hostfiles.NewDirectory("/var/empty", 0o711)}
}

// switched returns the entries of the deployments, in boot order: forward, back, and then a
// deployment without entries.
func switched() [][]hostfiles.File {
	first := []hostfiles.File{
		hostfiles.NewFile("/var/data/own", 0o600, []byte("first")), hostfiles.NewFile("/var/a/b/file", 0o600, []byte("first")),
		hostfiles.NewDirectory("/var/empty", 0o700), hostfiles.NewLink("/var/link", "a"),
	}
	second := []hostfiles.File{
		hostfiles.NewFile("/var/data/own", 0o644, []byte("second")), hostfiles.NewFile("/var/a/c", 0o600, []byte("second")),
		hostfiles.NewFile("/var/empty", 0o600, nil), hostfiles.NewDirectory("/var/link", 0o750),
	}
	second[0].GID, second[3].UID = 8, 9
	return [][]hostfiles.File{first, second, first, nil}
}

// root returns the root directory of a deployment.
func (m *Switching) root(i int) string { return filepath.Join(m.dir, fmt.Sprint("deployment-", i)) }

// deploy creates a deployment that carries the entries.
func (m *Switching) deploy(root string, set []hostfiles.File) error {
	carriers, err := projection.Set{}.Carry(set)
	files := map[string]string{}
	for _, f := range carriers {
		if f.Kind == hostfiles.KindFile {
			files[root+f.Path] = string(f.Content)
		}
	}
	return errors.Join(err, os.MkdirAll(root, 0o755), writeAll(files), os.Symlink(filepath.Join(m.dir, "var"), filepath.Join(root, "var")))
}

// Live runs the machine until it runs the last deployment.
func (m *Switching) Live() error {
	for m.Boots = 1; m.Boots < 50; m.Boots++ {
		m.runs, m.settled = m.next, false
		for start := 1; ; start++ {
			if err := m.note(&m.State, m.disk, m.dir, fmt.Sprint(start, m.runs, m.next, m.settled)); err != nil {
				return err
			}
			if err := m.start(); err != nil {
				return err
			}
			if m.settled {
				if err := m.checkVar(); err != nil {
					return fmt.Errorf("while deployment %d runs, %w", m.runs, err)
				}
			}
			if m.loss != Kill {
				break
			}
		}
		if m.loss == None && m.runs == len(m.sets)-1 {
			return nil
		}
		if m.loss == None {
			m.loss = Leave
		}
		if err := m.disk.lose(m.loss); err != nil {
			return err
		}
	}
	return errors.New("it does not arrive")
}

// start runs the program once: it projects, and then commits the next deployment.
func (m *Switching) start() (err error) {
	m.cancel, m.dead, m.loss = func() {}, false, None
	defer func() {
		if c, ok := recover().(crashed); ok {
			m.loss, err = c.loss, nil
		}
	}()
	if err := m.project(m.root(m.runs)); err != nil {
		return err
	}
	m.settled = true
	if m.runs == len(m.sets)-1 || m.next != m.runs {
		return nil
	}
	if m.hasty {
		if err := m.project(m.root(m.runs + 1)); err != nil {
			return err
		}
	}
	return m.effect("rename loader", nil, func() error { m.next = m.runs + 1; return nil })
}

func (m *Switching) project(root string) error {
	var notes []string
	p := projection.Projector{Root: root, Disk: m.disk, Note: func(text string) { notes = append(notes, text) }}
	_, err := p.Project()
	if err == nil && len(notes) > 0 {
		err = fmt.Errorf("nobody has changed anything, and yet: %s", strings.Join(notes, "; "))
	}
	return err
}

// checkVar checks that /var has the entries of the running deployment, and is otherwise unchanged.
func (m *Switching) checkVar() error {
	want := map[string]hostfiles.File{}
	for _, f := range slices.Concat(ownOfVar(), m.sets[m.runs]) {
		want[f.Path] = f
	}
	for _, f := range m.sets[m.runs] {
		for dir := filepath.Dir(f.Path); dir != "/var"; dir = filepath.Dir(dir) {
			if _, there := want[dir]; !there {
				want[dir] = hostfiles.NewDirectory(dir, 0o755)
			}
		}
	}
	err := filepath.WalkDir(filepath.Join(m.dir, "var"), func(path string, _ fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, m.dir)
		if err != nil || name == "/var" {
			return err
		}
		if name == "/var/lib" {
			return fs.SkipDir
		}
		got, _, err := hostfiles.Read(m.dir, name)
		if err != nil {
			return err
		}
		if w, asked := want[name]; !asked || got.Entry != w.Entry {
			return fmt.Errorf("%s is a %s %q, want %s %q", name, got.Entry, got.Content, w.Entry, w.Content)
		}
		delete(want, name)
		return nil
	})
	if err == nil && len(want) > 0 {
		err = fmt.Errorf("%d entries are missing: %v", len(want), want)
	}
	return err
}

// Lived returns the result of the machine's life.
func (m *Switching) Lived() Life { return Life{m.Effects, m.State, m.Boots, m.next} }
