package vm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Recording holds all writes of a machine to its disk in one boot, in order. It is the log of
// QEMU's blklogwrites driver, in the format of the kernel's dm-log-writes target
// (Documentation/admin-guide/device-mapper/log-writes.rst).
type Recording struct {
	base    string // the disk as it was before the boot
	log     []byte
	entries []logEntry
}

// logEntry is one write or flush.
type logEntry struct {
	sector, sectors, flags uint64
	data                   []byte
}

const (
	logSector  = 512
	logMagic   = 0x6a736677736872
	logFlush   = 1 << 0
	logFUA     = 1 << 1 // durable without a flush
	logDiscard = 1 << 2 // carries no data
)

// Files in the directory of a recording.
const (
	recordedBase = "base"
	recordedLog  = "log"
)

// StartRecording copies the disk into dir and creates the log file there, and returns its name; "" if dir is "". It
// must be called directly before the power-on: even reading the boot entries may replay a journal and so write to the
// disk.
func StartRecording(ctx context.Context, dir, disk string) (log string, err error) {
	if dir == "" {
		return "", nil
	}
	if _, err := run(ctx, "cp", "--sparse=always", disk, filepath.Join(dir, recordedBase)); err != nil {
		return "", err
	}
	log = filepath.Join(dir, recordedLog)
	if err := os.WriteFile(log, nil, 0o644); err != nil { // QEMU requires that it exists
		return "", fmt.Errorf("cannot record: %w", err)
	}
	return log, nil
}

// OpenRecording reads the recording that a boot made in the directory BootOptions.Record: the disk
// before the boot, as the file "base", and the writes, as "log".
func OpenRecording(dir string) (*Recording, error) {
	log := filepath.Join(dir, recordedLog)
	data, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("cannot read recording: %w", err)
	}
	r := &Recording{base: filepath.Join(dir, recordedBase), log: data}
	le := binary.LittleEndian
	if len(data) < logSector || le.Uint64(data) != logMagic || le.Uint32(data[24:]) != logSector {
		return nil, fmt.Errorf("cannot read recording %s: it is no log of writes with sectors of %d bytes", log, logSector)
	}
	count := le.Uint64(data[16:])
	rest := data[logSector:]
	for range count {
		if len(rest) < logSector {
			return nil, fmt.Errorf("cannot read recording %s: it ends before its %d entries do", log, count)
		}
		e := logEntry{sector: le.Uint64(rest), sectors: le.Uint64(rest[8:]), flags: le.Uint64(rest[16:])}
		rest = rest[logSector:]
		if n := int(e.sectors) * logSector; n > 0 && e.flags&logDiscard == 0 {
			if len(rest) < n {
				return nil, fmt.Errorf("cannot read recording %s: a write ends beyond it", log)
			}
			e.data, rest = rest[:n], rest[n:]
		}
		r.entries = append(r.entries, e)
	}
	return r, nil
}

// EndRecording makes a moment the end of the recording in a directory: the one at which its log had a size in bytes.
// What was written later, such as by unmounting, no longer belongs to it.
func EndRecording(dir string, size int64) error {
	r, err := OpenRecording(dir)
	if err != nil {
		return err
	}
	head := slices.Clone(r.log[:logSector])
	binary.LittleEndian.PutUint64(head[16:], uint64(r.EntriesIn(size)))
	log, err := os.OpenFile(filepath.Join(dir, recordedLog), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot end recording: %w", err)
	}
	_, err = log.WriteAt(head, 0)
	if err = errors.Join(err, log.Truncate(min(size, int64(len(r.log)))), log.Close()); err != nil {
		return fmt.Errorf("cannot end recording: %w", err)
	}
	return nil
}

// Len returns the number of writes and flushes.
func (r *Recording) Len() int { return len(r.entries) }

// EntriesIn returns how many entries are complete in the first size bytes of the log.
func (r *Recording) EntriesIn(size int64) int {
	end := int64(logSector)
	for i, e := range r.entries {
		end += logSector + int64(len(e.data))
		if end > size {
			return i
		}
	}
	return len(r.entries)
}

// Flushes returns the indexes of the flushes.
func (r *Recording) Flushes() []int {
	var flushes []int
	for i, e := range r.entries {
		if e.flags&logFlush != 0 {
			flushes = append(flushes, i)
		}
	}
	return flushes
}

// Cut is a power cut just before an entry of the recording.
type Cut struct {
	Before int
	// Drop loses a random half of the writes after the last flush, as a disk that reorders
	// writes may. Seed selects them.
	Drop bool
	Seed uint64
}

func (c Cut) String() string {
	if c.Drop {
		return fmt.Sprintf("before write %d, a half of the unflushed lost", c.Before)
	}
	return fmt.Sprintf("before write %d", c.Before)
}

// Rebuild writes the disk as it is after the power cut to dst.
func (r *Recording) Rebuild(ctx context.Context, c Cut, dst string) error {
	return r.rebuild(ctx, dst, c.Before, c.loses())
}

// loses decides for each write that is not durable whether the disk has lost it.
func (c Cut) loses() func() bool {
	random := rand.New(rand.NewPCG(c.Seed, uint64(c.Before)))
	return func() bool { return c.Drop && random.IntN(2) == 0 }
}

// rebuildPart writes a partition as it is after the power cut to dst.
func (r *Recording) rebuildPart(c Cut, p partition, dst string) (err error) {
	base, err := os.Open(r.base)
	if err != nil {
		return fmt.Errorf("cannot rebuild partition: %w", err)
	}
	defer base.Close()
	part, err := os.Create(dst)
	if err != nil {
		return fmt.Errorf("cannot rebuild partition: %w", err)
	}
	defer func() { err = errors.Join(err, part.Close()) }()
	if _, err := io.Copy(part, io.NewSectionReader(base, p.offset, p.size)); err != nil {
		return fmt.Errorf("cannot rebuild partition: %w", err)
	}
	return r.replay(c.Before, c.loses(), func(e logEntry) error {
		if at := int64(e.sector) * logSector; at >= p.offset && at < p.offset+p.size {
			_, err := part.WriteAt(e.data, at-p.offset)
			return err
		}
		return nil
	})
}

// RebuildFlushed writes the disk at the end of the recording to dst, with only what is certain to be there: what
// was flushed.
func (r *Recording) RebuildFlushed(ctx context.Context, dst string) error {
	return r.rebuild(ctx, dst, r.Len(), func() bool { return true })
}

// rebuild writes the disk as it is just before an entry to dst. lost decides for each write that is not durable
// whether the disk has lost it.
func (r *Recording) rebuild(ctx context.Context, dst string, before int, lost func() bool) (err error) {
	if _, err := run(ctx, "cp", "--sparse=always", r.base, dst); err != nil {
		return err
	}
	disk, err := os.OpenFile(dst, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot rebuild disk: %w", err)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	return r.replay(before, lost, func(e logEntry) error {
		_, err := disk.WriteAt(e.data, int64(e.sector)*logSector)
		return err
	})
}

// replay calls write for each entry before one, but for those that are lost.
func (r *Recording) replay(before int, lost func() bool, write func(logEntry) error) error {
	flushed := -1
	for i, e := range r.entries[:before] {
		if e.flags&logFlush != 0 {
			flushed = i
		}
	}
	for i, e := range r.entries[:before] {
		if i > flushed && e.flags&logFUA == 0 && lost() {
			continue
		}
		if err := write(e); err != nil {
			return fmt.Errorf("cannot rebuild disk: %w", err)
		}
	}
	return nil
}
