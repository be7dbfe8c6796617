package rehearse

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

const dumpe2fs = "/usr/sbin/dumpe2fs"

// fileSystems judges the features of file systems. dumpe2fs of the new system reads a copy of the superblock, and prints
// FEATURE_… for a feature that its e2fsck does not know. e2fsck then refuses the file system, and systemd ends in the
// emergency shell. If the running system's does not know it either, that is no difference. It is forced to read file
// systems with features that it could not write.
func (s Stage) fileSystems(c Change, facts Facts) subject {
	sub := subject{files: map[string]File{}}
	var asked []FileSystem
	for _, f := range facts.FileSystems {
		if len(f.Superblock) == 1024 {
			name := fmt.Sprintf("superblock-%d", len(asked))
			asked, sub.files["run/"+name] = append(asked, f), File{Content: onlySuperblock(f.Superblock), Mode: 0o444}
			sub.programs = append(sub.programs, []string{dumpe2fs, "-f", "-h", "/run/" + name})
		}
	}
	sub.judge = func(ctx context.Context, ended []ending) (found []verdict.Finding, err error) {
		found, err = s.oldXFS(c, facts)
		for i, f := range asked {
			unknown := ended[i].unknownFeatures()
			if len(unknown) == 0 {
				continue
			}
			known := []string{"of another machine"} // which could not be asked
			if c.Running != (ostree.Checksum{}) {
				control, err := s.run(ctx, c.Running, sub.files, sub.programs[i])
				if err != nil {
					return found, err
				}
				known = control[0].features()
			}
			finding := verdict.Finding{Name: verdict.FileSystems, Weight: verdict.Warned, Text: fmt.Sprintf("%s is a file system (%s) with features that the new system's e2fsck does not know (%s): it does not check it",
				printable.Line(f.At), printable.Line(f.Type), strings.Join(unknown, ", "))}
			found = append(found, finding.RefuseIf(f.vital() && len(known) > 0 && !slices.ContainsFunc(known, isUnknown),
				"use an image with the e2fsprogs that made the file system, or remove the features while it is not mounted: tune2fs -O ^NAME"))
		}
		return found, err
	}
	return sub
}

// onlySuperblock returns the beginning of a file system without a journal, with zeros behind its superblock. dumpe2fs
// 1.47 reads the next block, of up to 64 KiB, and the journal's inode, or crashes. The checksum is written anew,
// which matters only if there is one.
func onlySuperblock(block []byte) []byte {
	const at, journal, checksum = 1024, 0xe0, 1020 // where it is, and in it the number of the inode and the checksum
	disk := append(append(make([]byte, at), block...), make([]byte, 128<<10-2048)...)
	clear(disk[at+journal:][:4])
	binary.LittleEndian.PutUint32(disk[at+checksum:], ^crc32.Checksum(disk[at:at+checksum], crc32.MakeTable(crc32.Castagnoli)))
	return disk
}

// features returns the features that dumpe2fs names.
func (e ending) features() []string {
	for line := range strings.Lines(e.Said) {
		if list, ok := strings.CutPrefix(line, "Filesystem features:"); ok {
			return strings.Fields(printable.Line(strings.TrimSpace(list)))
		}
	}
	return nil
}

func isUnknown(feature string) bool { return strings.HasPrefix(feature, "FEATURE_") }

func (e ending) unknownFeatures() []string {
	return slices.DeleteFunc(e.features(), func(feature string) bool { return !isUnknown(feature) })
}

// oldXFS judges file systems in version 4 of XFS, which a kernel can be built without.
func (s Stage) oldXFS(c Change, facts Facts) (found []verdict.Finding, err error) {
	for _, f := range facts.FileSystems {
		const version, mask = 100, 15 // offset of the version in the superblock, and its bits
		if f.Type != "xfs" || len(f.Superblock) < version+2 || !bytes.HasPrefix(f.Superblock, []byte("XFSB")) || binary.BigEndian.Uint16(f.Superblock[version:])&mask != 4 {
			continue
		}
		next, err := s.open(c.Next)
		if err != nil {
			return found, err
		}
		config, err := next.read("config")
		if err != nil {
			return found, err
		}
		if !slices.Contains(strings.Split(config, "\n"), "# CONFIG_XFS_SUPPORT_V4 is not set") {
			continue
		}
		finding := verdict.Finding{Name: verdict.FileSystems, Weight: verdict.Warned, Text: fmt.Sprintf("%s is a file system in version 4 of XFS, which the new kernel, %s, does not mount (CONFIG_XFS_SUPPORT_V4)", printable.Line(f.At), next.release)}
		found = append(found, finding.RefuseIf(f.vital(), "copy its data to a new file system, or install the machine anew: version 4 cannot be converted"))
	}
	return found, nil
}
