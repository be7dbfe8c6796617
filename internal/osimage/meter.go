package osimage

import (
	"sync"
	"time"
)

// reportEvery bounds how often progress is reported.
const reportEvery = 200 * time.Millisecond

// meter counts the bytes of all layers and reports progress now and then.
type meter struct {
	objects func() int
	report  func(Progress)

	mu      sync.Mutex
	total   int64 // to be fetched
	fetched int64
	last    time.Time
}

// Fetched implements source.Meter.
func (m *meter) Fetched(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetched += int64(n)
	m.tell(false)
}

// Again implements source.Meter.
func (m *meter) Again(n int) {
	m.mu.Lock()
	m.total += int64(n)
	m.mu.Unlock()
	m.Fetched(n)
}

// finish reports where things stand at the end and returns the bytes fetched.
func (m *meter) finish() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell(true)
	return m.fetched
}

// tell reports progress if it is time to, or if it must.
func (m *meter) tell(must bool) {
	if now := time.Now(); m.report != nil && (must || now.Sub(m.last) >= reportEvery) {
		m.last = now
		m.report(Progress{FetchedBytes: m.fetched, TotalBytes: m.total, Objects: m.objects(), Done: must})
	}
}
