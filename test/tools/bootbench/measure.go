package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// sample is one first boot.
type sample struct {
	Wall float64 `json:"wall_seconds"` // all boots until kubelet starts on the last one, from power-on each
	CPU  float64 `json:"cpu_seconds"`  // processor time of QEMU, or of the box, in that time
	// LatterWall and LatterCPU are the part of Wall and CPU from the end of the commit, when the reboot is requested or
	// the boot continues without one.
	LatterWall float64 `json:"commit_to_kubelet_seconds"`
	LatterCPU  float64 `json:"commit_to_kubelet_cpu_seconds"`
	PowerOns   int     `json:"power_ons"`
	Fetched    int64   `json:"fetched_bytes"` // from the registry
	// Of a boot in a box there are none of the following three.
	Peak    int64 `json:"peak_bytes,omitempty"`    // memory of the machine that is not available
	Written int64 `json:"written_bytes,omitempty"` // to the disk until kubelet starts
	// Read from the disk and written to it from then on, until the machine has settled and powered off.
	Later int64  `json:"io_after_kubelet_bytes,omitempty"`
	Steps []step `json:"steps"`

	boots []*vm.BootResult
}

// step is a part of a first boot.
type step struct {
	Name string  `json:"name"`
	Wall float64 `json:"wall_seconds"`
	CPU  float64 `json:"cpu_seconds"`
}

// machine makes the machine of a way before its first boot.
func (w *world) machine(ctx context.Context, way way) (*vm.Machine, error) {
	encapsulated, err := w.want.Encapsulated()
	if err != nil {
		return nil, err
	}
	s := way.setup(w.layout)
	s.Encapsulated = encapsulated
	added := w.want.Kargs
	if sameKernel(w.ways) {
		s.KernelArgs, added = append(s.KernelArgs, w.want.Kargs...), nil
	}
	if way.today {
		_, digest, _ := strings.Cut(w.want.Image, "@")
		if s.Files, err = today(fmt.Sprintf("TOOL=%s\nIMAGE=%s\nDIGEST=%s\nCOMMIT=%s\nFSYNC=%v\nKARGS='%s'\n",
			w.tool, w.want.Image, digest, w.lab.Guest.CommitB, way.fsync, strings.Join(added, " ")), w.want.PinningFiles()); err != nil {
			return nil, err
		}
	}
	return w.lab.MachineWith(ctx, way.name, s, w.console)
}

// maxPowerOns is more than any way needs.
const maxPowerOns = 3

// measure does one first boot.
func (w *world) measure(ctx context.Context, way way) (s sample, err error) {
	m, err := w.machine(ctx, way)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.Remove(m.Disk)) }()
	memory := filepath.Join(w.dir, "memory")
	m.Extra = []string{"-serial", "file:" + memory} // the gauge's
	before := w.lab.Registry.BytesServed()
	for arrived := false; !arrived; {
		if s.PowerOns == maxPowerOns {
			return s, fmt.Errorf("%s: no end after %d boots", way.name, s.PowerOns)
		}
		s.PowerOns++
		boot, err := m.Boot(ctx, vm.BootOptions{ExtraArgs: way.arguments(), Measure: marked, Limits: patience()})
		if err != nil {
			return s, fmt.Errorf("%s: %w", way.name, err)
		}
		s.boots = append(s.boots, boot)
		arrived = boot.Exit == vm.PoweredOff
		if !w.box {
			if err := s.addMemory(memory); err != nil {
				return s, err
			}
		}
	}
	s.Fetched = w.lab.Registry.BytesServed() - before
	if err := s.add(); err != nil {
		return s, w.explained(way, err, s)
	}
	return s, w.explained(way, errors.Join(s.taken(way), s.check(w.want)), s)
}

// patience are the limits of a measured boot: an emulated podman that pulls an image of 300 MB is silent for minutes of
// processor time.
func patience() vm.Limits {
	return vm.Limits{Idle: 20 * time.Minute, Spin: time.Hour, Total: 3 * time.Hour}
}

// taken returns an error if the machine went another way than the one that is measured: pivot then says why on the
// console and in its journal. The figures are those of the other way.
func (s *sample) taken(way way) error {
	if s.PowerOns == way.powerOns {
		return nil
	}
	err := fmt.Errorf("it was not the way that was taken: %d power-ons, wanted %d", s.PowerOns, way.powerOns)
	for _, line := range s.boots[0].Serial {
		if committed(line.Text) {
			return fmt.Errorf("%w (%s)", err, strings.TrimSpace(line.Text))
		}
	}
	return err
}

// explained adds to an error where the console of the last boot is.
func (w *world) explained(way way, err error, s sample) error {
	if err == nil {
		return nil
	}
	file, keepErr := s.last().Keep()
	return fmt.Errorf("%s: %w; the console of its last boot is in %s (%v)", way.name, err, file, keepErr)
}

func (s *sample) last() *vm.BootResult { return s.boots[len(s.boots)-1] }

// What the guest says on its console.
const (
	stepMark    = "@@step "
	kubeletMark = "@@kubelet started"
)

// committed reports whether a line is the first that says that the commit is over, in any of the ways.
func committed(line string) bool {
	return slices.ContainsFunc([]string{stepMark + "shutdown", "pivot: reboot: ", "the boot continues in the new system"},
		func(text string) bool { return strings.Contains(line, text) })
}

// marked reports whether a line is one at which the machine's usage is wanted.
func marked(line string) bool {
	return strings.Contains(line, stepMark) || strings.Contains(line, kubeletMark) || committed(line) || pivotStep.MatchString(line)
}

// addMemory adds the peak of a boot.
func (s *sample) addMemory(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.FieldsSeq(string(text)) {
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			continue // the machine has ended in the middle of a line
		}
		s.Peak = max(s.Peak, n)
	}
	if s.Peak == 0 {
		return errors.New("the guest did not report its memory")
	}
	return nil
}

// add adds up what the boots have used.
func (s *sample) add() error {
	for _, boot := range s.boots[:len(s.boots)-1] {
		s.until(boot.Duration, boot.Usage)
	}
	last := s.last()
	for _, line := range last.Serial {
		if strings.Contains(line.Text, kubeletMark) {
			s.until(line.At, *line.Usage)
			s.Later = last.Usage.Read + last.Usage.Written - line.Usage.Read - line.Usage.Written
			return s.addLatter()
		}
	}
	return errors.New("kubelet did not start on the last boot")
}

// addLatter adds the part of the time after the commit, which is in the first boot.
func (s *sample) addLatter() error {
	for _, line := range s.boots[0].Serial {
		if line.Usage != nil && committed(line.Text) {
			s.LatterWall, s.LatterCPU = s.Wall-line.At.Seconds(), s.CPU-line.Usage.CPU.Seconds()
			return nil
		}
	}
	return errors.New("the console of the first boot does not say when the system was committed")
}

func (s *sample) until(wall time.Duration, use vm.Usage) {
	s.Wall += wall.Seconds()
	s.CPU += use.CPU.Seconds()
	s.Written += use.Written
}

// check checks that the machine is what was wanted: otherwise its figures say nothing.
func (s *sample) check(want bootlab.Want) error {
	r, err := s.last().Report()
	if err != nil {
		return err
	}
	var problems []error
	if !r.MarkerB || r.Version != "B.2" {
		problems = append(problems, fmt.Errorf("it runs version %s", r.Version))
	}
	for _, arg := range strings.Fields(strings.Join(want.Kargs, " ")) {
		if strings.Count(" "+r.Cmdline+" ", " "+arg+" ") != 1 {
			problems = append(problems, fmt.Errorf("its command line is %q, not with %s once", r.Cmdline, arg))
		}
	}
	for _, f := range want.PinningFiles() {
		problems = append(problems, r.HasFile(f))
	}
	if r.FailedUnits != "" || r.Kubelet.ActiveState != "active" {
		problems = append(problems, fmt.Errorf("failed units: %q; kubelet: %s", r.FailedUnits, r.Kubelet.ActiveState))
	}
	if r.Encapsulated || !r.Closed {
		problems = append(problems, errors.New("the first boot is not closed"))
	}
	return errors.Join(problems...)
}
