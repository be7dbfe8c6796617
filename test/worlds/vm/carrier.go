package vm

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Carrier is what a file system is on, if not on a partition itself.
type Carrier string

// The supported carriers of the root. The guest needs the files of Builder.Storage.
const (
	LVM  Carrier = "LVM"  // the only logical volume of a volume group, vg/root
	Thin Carrier = "thin" // a thin volume of LVM, vg/root
	RAID Carrier = "RAID" // a mirror by md, with one disk
	// LUKS is a partition that the content of a file, LUKSKey, opens. Open cannot read such a root.
	LUKS Carrier = "LUKS"
)

// The key and the UUID of a partition with LUKS.
const (
	LUKSKey  = "the key of the guest's root"
	LUKSUUID = "0b6a1e1c-6a3c-4d0e-9d5a-3f2c5a7e9b10"
)

// thinMetadata is what is behind the data of a pool for a thin volume, in bytes: carrier.sh makes it.
const thinMetadata = 8 << 20

//go:embed carrier.sh
var carrierScript string

// before prepares a partition, and returns the part of the disk for the file system.
func (c Carrier) before(ctx context.Context, disk string, p partition, sysroot string) (partition, error) {
	switch c {
	case LVM:
		err := c.make(ctx, disk, p, sysroot)
		return carried(disk, p), err
	case Thin:
		err := c.make(ctx, disk, p, sysroot)
		p = carried(disk, p)
		p.size -= thinMetadata
		return p, err
	case RAID:
		return makeRAID(disk, p)
	case LUKS:
		const room = 32 << 20 // half of it for the header
		p.size -= room
	}
	return p, nil
}

// after completes a partition that has a file system.
func (c Carrier) after(ctx context.Context, disk string, p partition, sysroot string) error {
	if c == LUKS {
		return c.make(ctx, disk, p, sysroot)
	}
	return nil
}

// make makes the carrier by the programs of the system that is deployed in sysroot.
func (c Carrier) make(ctx context.Context, disk string, p partition, sysroot string) error {
	trees, err := filepath.Glob(filepath.Join(sysroot, StateRoot, "deploy/*.0"))
	if err != nil || len(trees) != 1 {
		return fmt.Errorf("cannot make %s: deployments %q: %w", c, trees, err)
	}
	return runPrivate(ctx, "bash", "-c", carrierScript, "carrier.sh", string(c), trees[0], disk,
		strconv.FormatInt(p.offset, 10), strconv.FormatInt(p.size, 10), LUKSKey, LUKSUUID)
}

// carried returns the part of a partition that has the file system: the whole one, unless LVM or md has a label there.
func carried(disk string, p partition) partition {
	const sector, first, extent = 512, 1 << 20, 4 << 20 // LVM2's defaults
	f, err := os.Open(disk)
	if err != nil {
		return p // whoever reads the file system says it
	}
	defer f.Close()
	label := make([]byte, 8)
	if _, err := f.ReadAt(label, p.offset+sector); err == nil && string(label) == "LABELONE" {
		p.offset, p.size = p.offset+first, (p.size-first)/extent*extent
	}
	if _, err := f.ReadAt(label, p.offset+raidEnd(p)); err == nil && binary.LittleEndian.Uint32(label) == raidMagic {
		p.size = raidEnd(p)
	}
	return p
}
