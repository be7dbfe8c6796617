package initramfs_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/initramfs"
)

// recorder is the disk of a machine that loses power after a number of effects.
type recorder struct {
	hostfiles.OS
	root    string
	effects []string
	limit   int // 0: none
}

var errPower = errors.New("no power")

func (r *recorder) effect(name, path string, do func(string) error) error {
	if r.limit > 0 && len(r.effects) == r.limit {
		return errPower
	}
	r.effects = append(r.effects, name+" "+strings.TrimPrefix(path, r.root))
	return do(path)
}

func (r *recorder) Sync(path string) error    { return r.effect("sync", path, r.OS.Sync) }
func (r *recorder) SyncAll(path string) error { return r.effect("syncall", path, r.OS.SyncAll) }
func (r *recorder) Remove(path string) error  { return r.effect("remove", path, r.OS.Remove) }

// TestCloseIgnition (P43): what Ignition wrote is synced, then the stamp is removed, then the config.
// It can be repeated after any interruption, and the stamp never outlives the config. As soon as the stamp is gone, the
// unit that removes it has a condition.
func TestCloseIgnition(t *testing.T) {
	want := []string{
		"syncall /etc", "syncall /var", "remove /boot/ignition.firstboot", "sync /boot",
		"remove /boot/ignition/config.ign", "remove /boot/ignition",
	}
	for limit := range len(want) + 1 {
		root := t.TempDir()
		write(t, root+"/boot/ignition.firstboot", "")
		write(t, root+"/boot/ignition/config.ign", "{}")
		must(t, errors.Join(os.Mkdir(root+"/etc", 0o755), os.Mkdir(root+"/var", 0o755)))
		disk := &recorder{root: root, limit: limit}
		i := initramfs.New(root)
		if err := i.CloseIgnition(disk); limit > 0 && limit < len(want) && !errors.Is(err, errPower) || limit == 0 && err != nil {
			t.Errorf("power for %d effects: %v", limit, err)
		}
		if limit == 0 && !slices.Equal(disk.effects, want) {
			t.Errorf("effects %q", disk.effects)
		}
		_, stamp := os.Stat(root + "/boot/ignition.firstboot")
		_, config := os.Stat(root + "/boot/ignition/config.ign")
		if stamp == nil && config != nil {
			t.Errorf("after %d effects the boot loader would run Ignition without its config", limit)
		}
		dropIn, err := os.ReadFile(root + "/run/systemd/system/coreos-ignition-firstboot-complete.service.d/50-pivot.conf")
		if stamp != nil && (err != nil || !strings.Contains(string(dropIn), "\nConditionPathExists=/boot/ignition.firstboot\n")) {
			t.Errorf("after %d effects the unit that removes the stamp would fail: %q, %v", limit, dropIn, err)
		}
		must(t, i.CloseIgnition(hostfiles.OS{}))
		for _, path := range []string{"/boot/ignition.firstboot", "/boot/ignition"} {
			if _, err := os.Stat(root + path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s after all: %v", path, err)
			}
		}
	}
}
