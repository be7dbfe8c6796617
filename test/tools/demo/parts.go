package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// parts is what takes the time of a demonstration.
type parts struct {
	names []string // in the order of their first beginning
	took  map[string]time.Duration
	now   string // the part that runs; "": none
	since time.Time
}

// newParts returns the parts with those that were over before this program: NAME=SECONDS, separated by commas.
func newParts(before string) (*parts, error) {
	p := &parts{took: map[string]time.Duration{}}
	for part := range strings.SplitSeq(before, ",") {
		if part == "" {
			continue
		}
		name, seconds, _ := strings.Cut(part, "=")
		took, err := time.ParseDuration(seconds + "s")
		if err != nil {
			return nil, fmt.Errorf("cannot use part %q: %w", part, err)
		}
		p.add(name, took)
	}
	return p, nil
}

// next ends the part that runs, and begins or continues another one.
func (p *parts) next(name string) {
	now := time.Now()
	if p.now != "" {
		p.add(p.now, now.Sub(p.since))
	}
	p.now, p.since = name, now
}

func (p *parts) add(name string, took time.Duration) {
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
	p.took[name] += took
}

// String ends the part that runs, and returns all.
func (p *parts) String() string {
	p.next("")
	var all time.Duration
	var texts []string
	for _, name := range p.names {
		all += p.took[name]
		texts = append(texts, fmt.Sprintf("%s %.0f s", name, p.took[name].Seconds()))
	}
	return fmt.Sprintf("%.0f s in all: %s", all.Seconds(), strings.Join(texts, ", "))
}
