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

// State describes the machine at the first start of its program after the last crash: everything
// that decides the rest of its life. Machines in the same state continue alike.
type State struct {
	Digest  string // SHA-256 in hex; "" if the program did not start again
	Effects int    // number of effects so far
}

// now is the machine's clock. It stands still, so that a state does not depend on the time.
func now() time.Time { return time.Unix(1_800_000_000, 0) }

// noteState records the state before the nth start of a boot, unless crashes are still to come.
func (m *Machine) noteState(n int) error {
	staged, err := json.Marshal(m.staged)
	if err != nil {
		return err
	}
	others := []string{
		fmt.Sprintf("start %d of boot %d, %d reboots, %d boot entries, root %s", n, m.Boots, m.Reboots, m.entries, m.root),
		fmt.Sprintf("staged %s, locked %v, rebooting %v, again %v", staged, m.locked, m.rebooting, m.again),
	}
	if m.guarded {
		others = append(others, fmt.Sprintf("dead %d, left %d", m.deadBoots, m.left))
	}
	if m.trial != nil {
		others = append(others, fmt.Sprintf("trial %+v", *m.trial))
	}
	if m.applying != nil {
		others = append(others, fmt.Sprintf("applying %+v", *m.applying))
	}
	if m.returning != nil {
		others = append(others, fmt.Sprintf("returning %+v", *m.returning))
	}
	return m.note(&m.State, m.disk, m.dir, others...)
}

// note records the state of a machine with its files below dir, at the first call after the last crash. others is the
// part of the state that is not in files.
func (p *power) note(state *State, disk *disk, dir string, others ...string) error {
	if state.Digest != "" || p.crashes == 0 || len(p.points) > 0 {
		return nil
	}
	sum := sha256.New()
	hash := func(format string, args ...any) {
		fmt.Fprintf(sum, "%q\n", strings.ReplaceAll(fmt.Sprintf(format, args...), dir, ""))
	}
	for _, other := range others {
		hash("%s", other)
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
		hash("%s %s %s", path, info.Mode(), content)
		return err
	})
	if err != nil {
		return err
	}
	for i, names := range []map[string]*inode{disk.now, disk.durable} {
		for _, path := range slices.Sorted(maps.Keys(names)) {
			n := names[path]
			hash("%d %s %s %d:%d %s %s %s %v", i, path, n.mode, n.uid, n.gid, n.target, n.content, n.durable, n == disk.now[path])
		}
	}
	*state = State{fmt.Sprintf("%x", sum.Sum(nil)), len(p.Effects)}
	if p.known != nil && p.known(state.Digest) {
		return ErrKnown
	}
	return nil
}

// Life is the result of a machine's life.
type Life struct {
	Effects        []Effect
	State          State
	Boots, Reboots int // Reboots counts those that the program asked for and that happened
}

// Lived returns the result of the machine's life.
func (m *Machine) Lived() Life { return Life{m.Effects, m.State, m.Boots, m.Reboots} }
