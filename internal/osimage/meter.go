package osimage

import (
	"sync"
	"time"
)

// reportEvery bounds how often progress is reported.
const reportEvery = 200 * time.Millisecond

// meter counts the bytes of all layers and reports progress.
type meter struct {
	objects func() int
	report  func(Progress)

	mu       sync.Mutex
	total    int64 // to be fetched
	received int64
	last     time.Time
}

// Fetched implements source.Meter.
func (m *meter) Fetched(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.received += int64(n)
	m.update(false)
}

// Again implements source.Meter.
func (m *meter) Again(n int) {
	m.mu.Lock()
	m.total += int64(n)
	m.mu.Unlock()
	m.Fetched(n)
}

// finish reports the final progress and returns how many bytes were fetched.
func (m *meter) finish() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.update(true)
	return m.received
}

// update reports progress: at most once each reportEvery, or always if forced.
func (m *meter) update(force bool) {
	if now := time.Now(); m.report != nil && (force || now.Sub(m.last) >= reportEvery) {
		m.last = now
		m.report(Progress{FetchedBytes: m.received, TotalBytes: m.total, Objects: m.objects(), Done: force})
	}
}
