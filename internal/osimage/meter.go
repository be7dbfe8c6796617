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

	mu   sync.Mutex
	now  Progress
	last time.Time
}

// expect sets what is to be fetched.
func (m *meter) expect(bytes int64) { m.now.TotalBytes = bytes }

// layers sets how many layers are to be read.
func (m *meter) layers(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.TotalLayers = n
}

// layer counts one that is whole.
func (m *meter) layer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Layers++
	m.tell(false)
}

// writing reports that nothing is read any more.
func (m *meter) writing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Writing = true
	m.tell(true)
}

// Fetched implements source.Meter.
func (m *meter) Fetched(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.FetchedBytes += int64(n)
	m.tell(false)
}

// Again implements source.Meter.
func (m *meter) Again(n int) {
	m.mu.Lock()
	m.now.TotalBytes += int64(n)
	m.mu.Unlock()
	m.Fetched(n)
}

// finish reports the final progress and returns how many bytes were fetched.
func (m *meter) finish() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done = true
	m.tell(true)
	return m.now.FetchedBytes
}

// tell reports progress if it is time to, or if it must.
func (m *meter) tell(must bool) {
	if now := time.Now(); m.report != nil && (must || now.Sub(m.last) >= reportEvery) {
		m.last, m.now.Objects = now, m.objects()
		m.report(m.now)
	}
}
