package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"machine-pivot/test/tools/figures"
)

// report is the result of a run.
type report struct {
	Layout string `json:"layout"`
	Box    bool   `json:"box"` // the machines booted in boxes, not in QEMU
	// SameKernel: B has the kernel and the initramfs of A, and A the kernel arguments of B.
	SameKernel bool     `json:"same_kernel"`
	Rounds     int      `json:"rounds"`
	Sizes      facts    `json:"sizes"`
	Results    []result `json:"results"`
}

// result is what was measured of one way.
type result struct {
	Way     string   `json:"way"`
	Median  sample   `json:"median"`
	Samples []sample `json:"samples"`
	Targets []target `json:"targets,omitempty"`
	// Cuts is what power cuts left; nil if none were tried.
	Cuts *cutResult `json:"power_cuts,omitempty"`
}

// run measures all ways in turns.
func (s options) run(ctx context.Context) (_ *report, err error) {
	dir, err := os.MkdirTemp("", "bootbench-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := newWorld(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.lab.Close()) }()
	r := &report{Layout: s.layout.String(), Box: s.box, SameKernel: sameKernel(s.ways), Rounds: s.rounds, Sizes: w.facts}
	for _, way := range s.ways {
		r.Results = append(r.Results, result{Way: way.name, Targets: way.targets})
	}
	for round := range s.rounds {
		for i := range s.ways {
			n := (round + i) % len(s.ways) // each round begins with another way
			if err := w.round(ctx, s.ways[n], &r.Results[n]); err != nil {
				return nil, err
			}
		}
	}
	for n, way := range s.ways {
		if err := w.conclude(ctx, way, &r.Results[n]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// conclude adds to the result of a way what is not measured in rounds.
func (w *world) conclude(ctx context.Context, way way, r *result) error {
	if w.rounds > 0 {
		r.Median = medians(r.Samples)
		if err := keepPicture(w.pictures, way, r.Median); err != nil {
			return err
		}
	}
	if w.cuts == 0 {
		return nil
	}
	cuts, err := w.cutPower(ctx, way, w.cuts)
	r.Cuts = &cuts
	return err
}

// round measures a way once more.
func (w *world) round(ctx context.Context, way way, to *result) error {
	s, err := w.measure(ctx, way)
	if err != nil {
		return err
	}
	s.stepsOf()
	w.say("%s: %.1f s, processor %.1f s, %d power-ons", way.name, s.Wall, s.CPU, s.PowerOns)
	to.Samples = append(to.Samples, s)
	return nil
}

// medians returns a sample with the median of each figure. The steps are those of the sample with the median
// processor time.
func medians(samples []sample) sample {
	cpu := func(s sample) float64 { return s.CPU }
	m := sample{
		Wall:       figures.Middle(samples, func(s sample) float64 { return s.Wall }),
		CPU:        figures.Middle(samples, cpu),
		LatterWall: figures.Middle(samples, func(s sample) float64 { return s.LatterWall }),
		LatterCPU:  figures.Middle(samples, func(s sample) float64 { return s.LatterCPU }),
		PowerOns:   figures.Middle(samples, func(s sample) int { return s.PowerOns }),
		Fetched:    figures.Middle(samples, func(s sample) int64 { return s.Fetched }),
		Peak:       figures.Middle(samples, func(s sample) int64 { return s.Peak }),
		Written:    figures.Middle(samples, func(s sample) int64 { return s.Written }),
		Later:      figures.Middle(samples, func(s sample) int64 { return s.Later }),
	}
	typical := samples[slices.IndexFunc(samples, func(s sample) bool { return s.CPU == m.CPU })]
	m.Steps, m.boots = typical.Steps, typical.boots
	return m
}

// find returns the result of a way, or an empty one.
func (r *report) find(name string) result {
	for _, one := range r.Results {
		if one.Way == name {
			return one
		}
	}
	return result{}
}

func (r *report) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "OS image: %s; tool image: %s; disk: %s; %d rounds in turns; medians, times with least and most\n\n",
		megabytes(r.Sizes.OSImage), megabytes(r.Sizes.ToolImage), r.Layout, r.Rounds)
	if r.Box {
		fmt.Fprint(&b, "In boxes, without emulation: there are no kernels and initramfs to start, and memory and I/O are not measured\n\n")
	}
	if r.SameKernel {
		fmt.Fprint(&b, "B has the kernel and the initramfs of A, and A the kernel arguments of B\n\n")
	}
	if r.Rounds > 0 {
		r.table(&b)
		r.targets(&b)
	}
	for _, one := range r.Results {
		if c := one.Cuts; c != nil {
			fmt.Fprintf(&b, "\n%s, after %d power cuts: %d machines that would not boot, %d repositories with damage, %d with a commit marked as partial\n", one.Way, c.Tried, c.Unbootable, c.Broken, c.Partial)
			if c.First != "" {
				fmt.Fprintf(&b, "  the first: %s\n", c.First)
			}
		}
	}
	for _, one := range r.Results {
		if len(one.Median.Steps) > 0 {
			fmt.Fprintf(&b, "\n%s, seconds (processor seconds)\n", one.Way)
		}
		for _, s := range one.Median.Steps {
			fmt.Fprintf(&b, "  %-20s %7.1f (%.1f)\n", s.Name, s.Wall, s.CPU)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (r *report) table(out io.Writer) {
	columns := []string{"way", "to kubelet s", "processor s", "power-ons", "fetched MB", "peak MB", "written MB", "I/O later MB",
		"wall/today", "processor/today", "wall/no fsync", "processor/no fsync", "commit to kubelet s", "wall/reboot", "processor/reboot", "commit to kubelet/reboot"}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	today, unsafely, reboot := r.find(todayName).Median, r.find(todayNoFsync).Median, r.find(rebootName).Median
	for _, one := range r.Results {
		m := one.Median
		fmt.Fprintln(w, strings.Join([]string{
			one.Way, spread(one.Samples, func(s sample) float64 { return s.Wall }), spread(one.Samples, func(s sample) float64 { return s.CPU }),
			fmt.Sprint(m.PowerOns), mb(m.Fetched), mb(m.Peak), mb(m.Written), mb(m.Later),
			shown(m.Wall, today.Wall), shown(m.CPU, today.CPU), shown(m.Wall, unsafely.Wall), shown(m.CPU, unsafely.CPU),
			spread(one.Samples, func(s sample) float64 { return s.LatterWall }), shown(m.Wall, reboot.Wall), shown(m.CPU, reboot.CPU), shown(m.LatterWall, reboot.LatterWall),
		}, "\t"))
	}
	_ = w.Flush() // out is memory
}

// targets prints whether the targets are met. On a busy host, wall times say little.
func (r *report) targets(out io.Writer) {
	for _, one := range r.Results {
		for _, t := range one.Targets {
			t.print(out, one, r.find(t.Than))
		}
	}
}

// print prints whether a way meets the target, relative to another one, if that was measured.
func (t target) print(out io.Writer, way, than result) {
	wall, cpu := t.Of.times(way.Median)
	otherWall, otherCPU := t.Of.times(than.Median)
	if otherWall == 0 {
		return
	}
	verdict := "MISSED"
	if wall/otherWall <= t.Most {
		verdict = "met"
	}
	fmt.Fprintf(out, "\ntarget: %s takes at most %.2f of the time of %s from %s: %.3f, %s; of its processor time: %s\n",
		way.Way, t.Most, than.Way, t.Of, wall/otherWall, verdict, shown(cpu, otherCPU))
}

// spread returns the median of a figure, with the least and the most.
func spread(samples []sample, figure func(sample) float64) string {
	by := func(a, b sample) int { return cmp.Compare(figure(a), figure(b)) }
	return fmt.Sprintf("%.1f (%.1f-%.1f)", figures.Middle(samples, figure), figure(slices.MinFunc(samples, by)), figure(slices.MaxFunc(samples, by)))
}

// shown returns a ratio, or "-" if there is none.
func shown(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", a/b)
}

func mb(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

func megabytes(n int64) string { return mb(n) + " MB" }
