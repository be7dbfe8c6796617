package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/sepolicy"
)

// PutInRunningEtc durably writes one of pivot's own files or directories to the running /etc,
// or removes it. This needs no new deployment, because only pivot reads these files.
func (m *Machine) PutInRunningEtc(f hostfiles.File, labels sepolicy.Labels) error {
	name, disk := m.Host.Path(f.Path), m.Host.Disk
	dir := filepath.Dir(name)
	if f.Removes() {
		err := disk.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if _, err := os.Lstat(dir); err != nil {
			return nil
		}
		return disk.Sync(dir) // also for a removal that an earlier run did not sync
	}
	if err := hostfiles.MakeDir(disk, dir, 0o755); err != nil {
		return err
	}
	if f.Kind == hostfiles.KindDirectory {
		return hostfiles.MakeDir(disk, name, f.Mode)
	}
	have, there, err := hostfiles.Read(m.Host.Root, f.Path)
	if err == nil && there && have.Kind == f.Kind && have.Mode == f.Mode && bytes.Equal(have.Content, f.Content) {
		return disk.Sync(dir) // a killed run may have renamed the file without this
	}
	label, err := labels.Of(f.Path, f.Kind.Type())
	if err == nil {
		err = hostfiles.Put(disk, m.Host.Root, f, label)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}
