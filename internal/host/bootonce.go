package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
)

// oneShot is a boot loader's method to start an entry once and then its default again.
type oneShot struct {
	loader string
	set    func(entry ostree.BootEntry) []string // the command that sets the entry
	forget []string                              // the command that unsets it
}

// OneShot returns the name of the boot loader's method to start an entry once. The error says
// why there is none.
func (h *Host) OneShot() (loader string, err error) {
	o, err := h.loaderOnce()
	return o.loader, err
}

// BootOnce makes the boot loader start a deployment at the next boot only, and the default at
// the boot after that.
func (h *Host) BootOnce(ctx context.Context, d ostree.Deployment) error {
	o, err := h.loaderOnce()
	if err == nil {
		_, err = h.Run(ctx, o.set(d.Entry)...)
	}
	return err
}

// ForgetOnce undoes BootOnce.
func (h *Host) ForgetOnce(ctx context.Context) error {
	o, err := h.loaderOnce()
	if err == nil {
		_, err = h.Run(ctx, o.forget...)
	}
	return err
}

func (h *Host) loaderOnce() (oneShot, error) {
	if features, err := h.loaderFeatures(); err != nil {
		return oneShot{}, err
	} else if features&entryOneShot != 0 {
		return oneShot{
			loader: "a one-shot entry (LoaderEntryOneShot)",
			set:    func(e ostree.BootEntry) []string { return []string{"bootctl", "set-oneshot", e.File} },
			forget: []string{"bootctl", "set-oneshot", ""},
		}, nil
	}
	return h.grubOnce()
}

// The boot loader interface (systemd.io/BOOT_LOADER_INTERFACE): a loader announces its features
// in an EFI variable, 64 bits little-endian after the variable's four bytes of attributes.
const (
	loaderFeaturesPath = efiPath + "/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	entryOneShot       = 1 << 3
)

func (h *Host) loaderFeatures() (byte, error) {
	text, err := os.ReadFile(h.Path(loaderFeaturesPath))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) < 5 {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot observe the host: %w", err)
	}
	return text[4], nil
}

// grubOnce returns the method for a GRUB whose configuration starts $next_entry once and uses
// BLS entries, whose IDs are their file names without ".conf". The configuration from
// grub2-mkconfig does so; bootupd's static one, which Fedora CoreOS has, does not.
func (h *Host) grubOnce() (oneShot, error) {
	for _, name := range []string{"grub2", "grub"} {
		dir := h.Path("/boot/" + name)
		config, err := os.ReadFile(filepath.Join(dir, "grub.cfg"))
		if err != nil {
			continue
		}
		for _, word := range []string{"blscfg", "save_env next_entry"} {
			if !strings.Contains(string(config), word) {
				return oneShot{}, fmt.Errorf("GRUB's configuration has no %q: it knows no entry that is started once", word)
			}
		}
		env := filepath.Join(dir, "grubenv")
		if err := grubWrites(env); err != nil {
			return oneShot{}, err
		}
		return oneShot{
			loader: "GRUB's next_entry",
			set: func(e ostree.BootEntry) []string {
				return []string{name + "-editenv", env, "set", "next_entry=" + strings.TrimSuffix(e.File, ".conf")}
			},
			forget: []string{name + "-editenv", env, "unset", "next_entry"},
		}, nil
	}
	return oneShot{}, errors.New("no boot loader is known here that starts an entry once")
}

// grubWrites returns an error if GRUB cannot clear $next_entry, and so would start that entry
// again and again. GRUB can only write to the blocks of an existing file, on certain file
// systems, and not on device mapper or RAID.
func grubWrites(env string) error {
	var file unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Stat(env, &file), unix.Statfs(env, &system)); err != nil {
		return fmt.Errorf("cannot look at GRUB's environment: %w", err)
	}
	switch system.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC:
	default:
		return fmt.Errorf("GRUB cannot write to the file system of %s", env)
	}
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(file.Dev), unix.Minor(file.Dev))
	for _, kind := range []string{"dm", "md"} {
		if _, err := os.Stat(filepath.Join(device, kind)); err == nil {
			return fmt.Errorf("GRUB cannot write to the device of %s", env)
		}
	}
	return nil
}
