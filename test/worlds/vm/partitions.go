package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// partition is a part of a disk, in bytes, or the whole disk, at offset 0.
type partition struct {
	name         string
	offset, size int64
}

// tableRoom is the space in bytes for a GPT and the alignment of partitions, at both ends.
const tableRoom = 2 << 20

// partitioned makes an empty disk with partitions of the given names and sizes, and returns them
// with their offsets. A single partition is the whole disk, without a partition table.
func partitioned(ctx context.Context, disk string, wanted []partition) ([]partition, error) {
	if len(wanted) == 1 {
		return wanted, blank(disk, wanted[0].size)
	}
	size, table := int64(tableRoom), "label: gpt\n"
	for _, p := range wanted {
		size += p.size
		table += fmt.Sprintf("size=%dKiB, name=%s", p.size>>10, p.name)
		if p.name == espPartition {
			table += ", type=uefi"
		}
		table += "\n"
	}
	if err := blank(disk, size); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sfdisk", "--quiet", disk)
	cmd.Stdin = strings.NewReader(table)
	if _, err := output(cmd); err != nil {
		return nil, err
	}
	return partitionsOf(ctx, disk)
}

// blank makes a sparse file of zeros.
func blank(path string, size int64) error {
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, size)); err != nil {
		return fmt.Errorf("cannot make disk: %w", err)
	}
	return nil
}

// partitionsOf reads a disk's partition table.
func partitionsOf(ctx context.Context, disk string) ([]partition, error) {
	out, err := run(ctx, "sfdisk", "--json", disk)
	if err != nil {
		return nil, err
	}
	var t struct {
		PartitionTable struct {
			SectorSize int64
			Partitions []struct {
				Name        string
				Start, Size int64 // sectors
			}
		}
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return nil, fmt.Errorf("cannot read the partitions of %s: %w", disk, err)
	}
	var parts []partition
	for _, p := range t.PartitionTable.Partitions {
		parts = append(parts, partition{p.Name, p.Start * t.PartitionTable.SectorSize, p.Size * t.PartitionTable.SectorSize})
	}
	return parts, nil
}
