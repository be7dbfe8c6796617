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

// expect sets how many bytes are to be fetched.
func (m *meter) expect(bytes int64) { m.now.TotalBytes = bytes }

// expectMore changes how many bytes are to be fetched.
func (m *meter) expectMore(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.TotalBytes += bytes
}

// outstanding returns how many bytes are still to be fetched.
func (m *meter) outstanding() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.now.TotalBytes-m.now.FetchedBytes, 0)
}

// layers sets how many layers are to be read.
func (m *meter) layers(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.TotalLayers = n
}

// layer counts a complete layer.
func (m *meter) layer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Layers++
	m.emit(false)
}

// writing reports that all layers are read.
func (m *meter) writing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Writing = true
	m.emit(true)
}

// Fetched implements source.Meter.
func (m *meter) Fetched(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.FetchedBytes += int64(n)
	m.emit(false)
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
	m.emit(true)
	return m.now.FetchedBytes
}

// emit reports progress at most every reportEvery, or always if force is set.
func (m *meter) emit(force bool) {
	if now := time.Now(); m.report != nil && (force || now.Sub(m.last) >= reportEvery) {
		m.last, m.now.Objects = now, m.objects()
		m.report(m.now)
	}
}
