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
	if m.State.Digest != "" || m.crashes == 0 || len(m.points) > 0 {
		return nil
	}
	sum := sha256.New()
	tell := func(format string, args ...any) {
		fmt.Fprintf(sum, "%q\n", strings.ReplaceAll(fmt.Sprintf(format, args...), m.dir, ""))
	}
	staged, err := json.Marshal(m.staged)
	if err != nil {
		return err
	}
	tell("start %d of boot %d, %d reboots, %d boot entries, root %s", n, m.Boots, m.Reboots, m.entries, m.root)
	tell("staged %s, locked %v, rebooting %v, again %v", staged, m.locked, m.rebooting, m.again)
	if m.trial != nil {
		tell("trial %+v", *m.trial)
	}
	err = filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
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
	for i, names := range []map[string]*inode{m.disk.now, m.disk.durable} {
		for _, path := range slices.Sorted(maps.Keys(names)) {
			n := names[path]
			tell("%d %s %s %s %s %v", i, path, n.mode, n.content, n.durable, n == m.disk.now[path])
		}
	}
	m.State = State{fmt.Sprintf("%x", sum.Sum(nil)), len(m.Effects)}
	return nil
}
