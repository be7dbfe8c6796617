package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressInterval is how often something that takes long says that it still runs.
const progressInterval = 10 * time.Second

// progress passes lines on, and after the last one says now and then that what it names still runs.
type progress struct {
	w       io.Writer
	stopped chan struct{}
	ended   sync.WaitGroup

	mu    sync.Mutex
	last  string // the last line
	since time.Time
}

func startProgress(w io.Writer, first string) *progress {
	p := &progress{w: w, stopped: make(chan struct{}), last: first, since: time.Now()}
	p.ended.Go(p.tick)
	return p
}

func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	p.last, p.since = lines[len(lines)-1], time.Now()
	return p.w.Write(text)
}

func (p *progress) tick() {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-p.stopped:
			return
		case <-ticker.C:
			p.remind()
		}
	}
}

func (p *progress) remind() {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "  %s: %.0f s so far\n", p.last, time.Since(p.since).Seconds())
}

// stop ends the reminders.
func (p *progress) stop() {
	close(p.stopped)
	p.ended.Wait()
}
