package crash

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// State is the machine at the first start of its program after its last crash: all that
// decides about the rest of its life. Two lives with one state go on alike.
type State struct {
	Digest  string // "" if the program did not start again
	Effects int    // so far
}

// now is the one time that the machine's clock shows: a state must not depend on it.
func now() time.Time { return time.Unix(1_800_000_000, 0) }

// noteState notes the state before the nth start of a boot, if its time has come.
func (m *Machine) noteState(n int) error {
	staged, err := json.Marshal(m.staged)
	if err != nil {
		return err
	}
	others := []string{
		fmt.Sprintf("start %d of boot %d, %d reboots, %d boot entries, root %s", n, m.Boots, m.Reboots, m.entries, m.root),
		fmt.Sprintf("staged %s, locked %v, rebooting %v, again %v", staged, m.locked, m.rebooting, m.again),
	}
	if m.trial != nil {
		others = append(others, fmt.Sprintf("trial %+v", *m.trial))
	}
	if m.applying != nil {
		others = append(others, fmt.Sprintf("applying %+v", *m.applying))
	}
	return m.note(&m.State, m.disk, m.dir, others...)
}

// note notes the state of a machine whose files are below dir, if its time has come: others
// are what is not in files.
func (p *power) note(state *State, disk *disk, dir string, others ...string) error {
	if state.Digest != "" || p.crashes == 0 || len(p.points) > 0 {
		return nil
	}
	sum := sha256.New()
	tell := func(format string, args ...any) {
		fmt.Fprintf(sum, "%q\n", strings.ReplaceAll(fmt.Sprintf(format, args...), dir, ""))
	}
	for _, other := range others {
		tell("%s", other)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		switch d.Type() {
		case fs.ModeSymlink:
			var target string
			target, err = os.Readlink(path)
			content = []byte(target)
		case 0:
			content, err = os.ReadFile(path)
		}
		tell("%s %s %s", path, info.Mode(), content)
		return err
	})
	if err != nil {
		return err
	}
	for i, names := range []map[string]*inode{disk.now, disk.durable} {
		for _, path := range slices.Sorted(maps.Keys(names)) {
			n := names[path]
			tell("%d %s %s %d:%d %s %s %s %v", i, path, n.mode, n.uid, n.gid, n.target, n.content, n.durable, n == disk.now[path])
		}
	}
	*state = State{fmt.Sprintf("%x", sum.Sum(nil)), len(p.Effects)}
	return nil
}

// Life is what a machine has lived through.
type Life struct {
	Effects        []Effect
	State          State
	Boots, Reboots int // Reboots: that the program asked for and that came about
}

// Lived is the life of the machine.
func (m *Machine) Lived() Life { return Life{m.Effects, m.State, m.Boots, m.Reboots} }
