package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"machine-pivot/test/worlds/controlplane"
)

// Slot is the place of a replica, in which another one is started as soon as one ends, as kubelet does.
type Slot struct {
	fleet   *Fleet
	metrics string // address

	held    sync.Mutex // while none may be started
	mu      sync.Mutex
	process *os.Process // nil: none runs
	log     bytes.Buffer
	peak    int // of memory, in MB
}

// Slot returns a slot, in which Run runs replicas.
func (f *Fleet) Slot() *Slot {
	f.t.Helper()
	s := &Slot{fleet: f, metrics: controlplane.FreeAddress(f.t)}
	f.t.Cleanup(func() {
		if f.t.Failed() {
			f.t.Logf("end of the log of a replica:\n%s", s.log.Bytes()[max(0, s.log.Len()-4000):])
		}
	})
	return s
}

// Run has a replica run until the end of ctx.
func (s *Slot) Run(ctx context.Context) {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the process ends
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		cmd := s.fleet.command(s.metrics)
		cmd.Stderr = &s.log
		s.held.Lock()
		err := cmd.Start()
		if err == nil {
			s.set(cmd.Process)
		}
		s.held.Unlock()
		if err != nil {
			s.fleet.t.Error(err)
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
		if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			s.fleet.t.Error(err)
		}
		stop()
		s.set(nil)
	}
}

func (s *Slot) set(p *os.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
}

// Kill ends the replica as a power cut does, and reports whether one ran.
func (s *Slot) Kill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.process != nil && s.process.Kill() == nil
}

// Hold kills the replica, and no other one is started until Release.
func (s *Slot) Hold() {
	s.held.Lock()
	s.Kill()
}

// Release ends Hold.
func (s *Slot) Release() { s.held.Unlock() }

// Peak returns the peak of the memory of each replica so far, in MB.
func (s *Slot) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return s.peak
}

// look notes the peak of the replica's memory.
func (s *Slot) look() {
	if s.process == nil {
		return
	}
	if megabytes, err := PeakMemory(s.process.Pid); err == nil { // else it has just ended
		s.peak = max(s.peak, megabytes)
	}
}

// Leads reports whether the replica holds the Lease.
func (s *Slot) Leads(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r := Replica{metrics: s.metrics}
	return r.Shows(ctx, `leader_election_master_status{name="pivot-fleet-controller"} 1`)
}

// PeakMemory returns the peak of the memory that a process has used, in MB.
func PeakMemory(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if peak == nil {
		return 0, fmt.Errorf("there is no VmHWM in %s", text)
	}
	kilobytes, err := strconv.Atoi(string(peak[1]))
	return kilobytes * 1024 / 1e6, err
}

// ProcessorTime returns the processor time that a process has used so far, in steps of 10 ms.
func ProcessorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var user, system time.Duration // in ticks, of which a second has 100: proc_pid_stat(5)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("there are too few fields in %s", text)
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	return (user + system) * 10 * time.Millisecond, nil
}
