package main

import (
	"cmp"
	"fmt"
	"slices"

	"machine-pivot/test/tools/figures"
)

// medians returns a sample with the median of each figure. Phases are those of the sample with the
// median wall time, so that they add up.
func medians(samples []sample) sample {
	m := sample{
		Wall:    figures.Middle(samples, func(s sample) float64 { return s.Wall }),
		CPU:     figures.Middle(samples, func(s sample) float64 { return s.CPU }),
		Peak:    figures.Middle(samples, func(s sample) int64 { return s.Peak }),
		Written: figures.Middle(samples, func(s sample) int64 { return s.Written }),
		Handed:  figures.Middle(samples, func(s sample) int64 { return s.Handed }),
		Device:  figures.Middle(samples, func(s sample) int64 { return s.Device }),
		Fetched: figures.Middle(samples, func(s sample) int64 { return s.Fetched }),
		Serving: figures.Middle(samples, func(s sample) float64 { return s.Serving }),
		Objects: samples[0].Objects, // equal in all
	}
	typical := slices.IndexFunc(samples, func(s sample) bool { return s.Wall == m.Wall })
	m.Phases = samples[typical].Phases
	return m
}

// spread formats the median wall time with the minimum and the maximum.
func spread(samples []sample) string {
	wall := func(a, b sample) int { return cmp.Compare(a.Wall, b.Wall) }
	return fmt.Sprintf("%.2f (%.2f-%.2f)", medians(samples).Wall, slices.MinFunc(samples, wall).Wall, slices.MaxFunc(samples, wall).Wall)
}

func ratio(a, b int64) float64 { return figures.Quotient(float64(a), float64(b)) }

func shown(q float64) string {
	if q == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", q)
}

func mb(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

func megabytes(n int64) string { return mb(n) + " MB" }
