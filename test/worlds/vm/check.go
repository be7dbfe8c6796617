package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// DiskState describes what the next boot of a powered-off machine would start, read from its
// disk.
type DiskState struct {
	Entries    []BootEntry // the default first
	Deployment string      // the default's directory, from the root of the file system
	Kernel     string      // SHA-256 of kernel and initramfs together, in hex
}

// Inspect returns Contents.State of a powered-off machine's disk.
func (m *Machine) Inspect(ctx context.Context) (DiskState, error) {
	return withContents(ctx, m, func(c *Contents) (DiskState, error) { return c.State(ctx) })
}

// State checks the disk without booting it and returns what it would boot. It returns an error if
// the machine would not boot properly: a file system is not clean, or a boot entry has no
// deployment, kernel or initramfs.
func (c *Contents) State(ctx context.Context) (s DiskState, err error) {
	for _, f := range c.parts {
		if err := f.check(ctx, c); err != nil {
			return s, err
		}
	}
	if s.Entries, err = c.bootEntries(); err != nil {
		return s, err
	}
	for i, e := range s.Entries {
		deployment, err := c.deploymentOf(e)
		if err != nil {
			return s, err
		}
		kernel, err := c.sumKernel(e)
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.Deployment, s.Kernel = deployment, kernel
		}
	}
	return s, nil
}

// deploymentOf follows an entry's ostree= option to the directory of its deployment.
func (c *Contents) deploymentOf(e BootEntry) (string, error) {
	for option := range strings.FieldsSeq(e.Options) {
		link, ok := strings.CutPrefix(option, "ostree=")
		if !ok {
			continue
		}
		// Readlink resolves the link /ostree/boot.N to boot.N.M on the way.
		target, err := c.root.Readlink(within(link))
		if err != nil {
			return "", err
		}
		dir := path.Join(path.Dir(link), target)
		// The target, ../../../deploy/…, is relative to /ostree/boot.N.M/OS/BOOTCSUM, which is as
		// deep as the unresolved /ostree/boot.N/OS/BOOTCSUM.
		if _, err := c.list(dir); err != nil {
			return "", fmt.Errorf("boot entry %s leads nowhere: %w", e.File, err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("boot entry %s names no deployment", e.File)
}

func (c *Contents) sumKernel(e BootEntry) (string, error) {
	sum := sha256.New()
	for _, file := range []string{e.linux, e.initrd} {
		content, err := c.readBoot(file)
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
