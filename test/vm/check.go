package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// DiskState is what a powered-off machine's next boot would start, read from
// its disk.
type DiskState struct {
	Entries    []BootEntry // the default first
	Deployment string      // the default's directory, from the root of the file system
	Kernel     string      // SHA-256 of kernel and initramfs together, in hex
}

// Inspect checks a powered-off machine's disk without booting it. It repairs
// nothing but replays the file system's journal, as a mount would. An error
// says what keeps the machine from booting whole: a file system that is not
// clean, or a boot entry that leads nowhere.
func (m *Machine) Inspect(ctx context.Context) (DiskState, error) {
	var s DiskState
	if err := m.replayJournal(ctx); err != nil {
		return s, err
	}
	if _, err := run(ctx, "e2fsck", "-f", "-n", m.Disk); err != nil {
		return s, fmt.Errorf("the file system is not clean: %w", err)
	}
	var err error
	if s.Entries, err = m.BootEntries(ctx); err != nil {
		return s, err
	}
	for i, e := range s.Entries {
		deployment, err := m.deploymentOf(ctx, e)
		if err != nil {
			return s, err
		}
		kernel, err := m.sumKernel(ctx, e)
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.Deployment, s.Kernel = deployment, kernel
		}
	}
	return s, nil
}

// deploymentOf follows an entry's ostree= option to its deployment.
func (m *Machine) deploymentOf(ctx context.Context, e BootEntry) (string, error) {
	for option := range strings.FieldsSeq(e.Options) {
		link, ok := strings.CutPrefix(option, "ostree=")
		if !ok {
			continue
		}
		// /ostree/boot.N is a link to boot.N.M; debugfs follows it on the way.
		target, err := m.readLink(ctx, link)
		if err != nil {
			return "", err
		}
		dir := path.Join(path.Dir(link), target)
		// ../../../deploy/… from /ostree/boot.N.M/OS/BOOTCSUM, whose depth is that of the link.
		if _, err := m.list(ctx, dir); err != nil {
			return "", fmt.Errorf("boot entry %s leads nowhere: %w", e.File, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("boot entry %s names no deployment", e.File)
}

// readLink reads a symbolic link on the disk.
func (m *Machine) readLink(ctx context.Context, name string) (string, error) {
	out, err := m.debugfs(ctx, "stat "+quote(name))
	if err != nil {
		return "", err
	}
	_, rest, fast := strings.Cut(string(out), `Fast link dest: "`)
	if target, _, ok := strings.Cut(rest, `"`); fast && ok {
		return target, nil
	}
	// A target of 60 bytes and more is in a block of its own.
	target, err := m.debugfs(ctx, "cat "+quote(name))
	if err != nil || len(target) == 0 {
		return "", fmt.Errorf("cannot read disk %s: %s is no link (%v)", m.Disk, name, err)
	}
	return string(target), nil
}

func (m *Machine) sumKernel(ctx context.Context, e BootEntry) (string, error) {
	sum := sha256.New()
	for _, file := range []string{e.linux, e.initrd} {
		content, err := m.debugfs(ctx, "cat "+quote(bootPath(file)))
		if err != nil {
			return "", err
		}
		if len(content) == 0 {
			return "", fmt.Errorf("boot entry %s names %s, which is empty", e.File, file)
		}
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
