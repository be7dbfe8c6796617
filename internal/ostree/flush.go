package ostree

import (
	"cmp"
	"sync"

	"machine-pivot/internal/guard"
)

// epoch numbers the times between two flushes, from 1.
type epoch uint32

// flusher syncs the file system in the background while objects are written: so the disk is not
// idle until the end, and at the end most objects are durable already. Import.mu guards all but
// running.
type flusher struct {
	running sync.WaitGroup

	busy   bool  // a sync is running
	now    epoch // of objects that are staged now
	synced epoch // the last one with durable objects
	failed error // of a sync: the kernel reports a write error only once
}

// flush starts a sync in the background, unless one is running. im.mu must be held.
func (im *Import) flush() {
	im.flushAt = im.stats.BytesWritten + flushEvery
	if !im.repo.config.fsync || im.repo.config.perObjectFsync || im.flusher.busy {
		return
	}
	im.flusher.busy = true
	covered := im.flusher.now
	im.flusher.now++
	im.flusher.running.Add(1)
	guard.Start(func() error {
		defer im.flusher.running.Done()
		err := im.staging.sync()
		im.mu.Lock()
		defer im.mu.Unlock()
		im.flusher.busy = false
		im.flusher.failed = cmp.Or(im.flusher.failed, err)
		if im.flusher.failed == nil { // otherwise nothing is known of what is on the disk
			im.flusher.synced = covered
		}
		return err
	})
}

// flushLast starts a sync when the import is about to finish, if much was written since the last.
func (im *Import) flushLast() {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.stats.BytesWritten > im.flushAt-flushEvery*3/4 {
		im.flush()
	}
}

// syncAll makes everything that was written durable, unless the configuration forbids it. It fails
// if a sync in the background has failed.
func (im *Import) syncAll() error {
	if !im.repo.config.fsync {
		return nil
	}
	err := im.staging.sync()
	im.mu.Lock()
	defer im.mu.Unlock()
	return cmp.Or(im.flusher.failed, err)
}

// byDurability orders staged objects, and splits them into the files that are durable already, and all others.
func (im *Import) byDurability(staged []ObjectName) (durable, others []ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	n := 0
	for i, name := range staged {
		if name.Type == File && im.objects[name].epoch <= im.flusher.synced {
			staged[n], staged[i] = staged[i], staged[n]
			n++
		}
	}
	return staged[:n], staged[n:]
}
