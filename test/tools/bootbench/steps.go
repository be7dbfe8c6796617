package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"machine-pivot/internal/pid1"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/vm"
)

// stepsOf returns the parts of a first boot until kubelet starts on the last boot, and what a way does after
// that: how each boot starts, and then its steps.
func (s *sample) stepsOf() {
	for n, boot := range s.boots {
		marks := append([]mark{{name: fmt.Sprintf("start of boot %d", n+1), kind: begins}}, marksOf(boot)...)
		for i, m := range marks[:len(marks)-1] {
			if next := marks[i+1]; m.kind == begins {
				s.Steps = append(s.Steps, step{m.name, (next.at - m.at).Seconds(), (next.use.CPU - m.use.CPU).Seconds()})
			}
		}
	}
}

// mark is a moment of a boot.
type mark struct {
	name string
	at   time.Duration // since power-on
	use  vm.Usage
	kind kind
}

type kind int

const (
	begins  kind = iota // a part of a first boot begins
	kubelet             // kubelet starts
	ends                // the last step, or the boot, ends
)

// pivotStep matches a line about a step that pivot itself writes to the console.
var pivotStep = regexp.MustCompile(`\bpivot: ([a-z]+): `)

// marksOf returns the moments of a boot that its console names, and its end.
func marksOf(boot *vm.BootResult) (all []mark) {
	last := ""
	for _, line := range boot.Serial {
		if line.Usage == nil {
			continue
		}
		m := mark{at: line.At, use: *line.Usage}
		if _, name, found := strings.Cut(line.Text, stepMark); found {
			m.name = name
		} else if said := pivotStep.FindStringSubmatch(line.Text); said != nil {
			m.name = said[1]
		} else {
			m.kind = kubelet
		}
		switch {
		case m.name == endStep:
			m.kind = ends
		case m.name == last && m.kind == begins:
			continue // pivot says more about the same step
		}
		last = m.name
		all = append(all, m)
	}
	return append(all, mark{kind: ends, at: boot.Duration, use: boot.Usage})
}

// endStep is what today's scripts say when they are done.
const endStep = "end"

// Texts on the console with which the parts of a boot begin.
const (
	kernelMark    = "Linux version "
	initramfsMark = "Running in initrd."
	systemMark    = "Welcome to Guest " // and, before that, of the initramfs: see inInitramfs
	inInitramfs   = "(Initramfs)!"
)

// picture returns the picture of a first boot, as "pivot plot" draws it. For pivot's ways the machine's own
// pivot has drawn it.
func (s *sample) picture(way way) ([]byte, error) {
	if !way.today {
		r, err := s.last().Report()
		return r.Plot, err
	}
	record, started := s.record()
	timeline, err := status.TimelineOf(record, 0)
	if err != nil {
		return nil, err
	}
	timeline.AddUnits(record.BootID, map[string]float64{"kubelet.service": started})
	var picture bytes.Buffer
	err = timeline.SVG(&picture)
	return picture.Bytes(), err
}

// record returns today's first boot as pivot would record it, and when kubelet started, in seconds after the
// last kernel's start. The clock is an imagined one on which the boots follow each other at once.
func (s *sample) record() (record pivot.JournalContent, started float64) {
	record = pivot.JournalContent{Phase: pivot.PhaseDone, Attempt: 1, Started: time.Unix(0, 0)}
	powerOn := time.Unix(0, 0)
	for n, boot := range s.boots {
		kernel := firstSaid(boot, kernelMark, 0)
		after := func(at time.Duration) float64 { return (at - kernel).Seconds() }
		record.BootID = pid1.StartID(fmt.Sprintf("boot %d", n+1))
		record.Boots = append(record.Boots, pivot.Boot{
			ID: record.BootID, Kernel: powerOn.Add(kernel),
			Initramfs: after(firstSaid(boot, initramfsMark, kernel)), System: after(firstSaid(boot, systemMark, kernel)),
		})
		marks := marksOf(boot)
		for i, m := range marks {
			switch {
			case m.kind == begins:
				record.Phases = append(record.Phases, pivot.Duration{Name: m.name, BootID: record.BootID, At: after(m.at), Seconds: (marks[i+1].at - m.at).Seconds()})
			case m.kind == kubelet:
				started = after(m.at)
			}
		}
		powerOn = powerOn.Add(boot.Duration)
	}
	return record, started
}

// firstSaid returns when a boot's console first had a text, but not about the initramfs, or otherwise.
func firstSaid(boot *vm.BootResult, text string, otherwise time.Duration) time.Duration {
	for _, line := range boot.Serial {
		if strings.Contains(line.Text, text) && !strings.Contains(line.Text, inInitramfs) {
			return line.At
		}
	}
	return otherwise
}

// keepPicture writes the picture of a first boot into a directory, if there is one.
func keepPicture(dir string, way way, s sample) error {
	if dir == "" {
		return nil
	}
	picture, err := s.picture(way)
	if err != nil {
		return fmt.Errorf("cannot draw %s: %w", way.name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, way.name+".svg"), picture, 0o644)
}
