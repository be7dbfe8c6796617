package main

import (
	"cmp"
	"fmt"
	"slices"
)

// median returns the median, or the lower of the two middle values.
func median[T cmp.Ordered](values []T) T {
	values = slices.Sorted(slices.Values(values))
	return values[(len(values)-1)/2]
}

// middle returns the median of a figure over all samples.
func middle[S any, T cmp.Ordered](samples []S, figure func(S) T) T {
	values := make([]T, len(samples))
	for n, s := range samples {
		values[n] = figure(s)
	}
	return median(values)
}

// medians returns a sample with the median of each figure. Phases are those of the sample with the
// median wall time, so that they add up.
func medians(samples []sample) sample {
	m := sample{
		Wall:    middle(samples, func(s sample) float64 { return s.Wall }),
		CPU:     middle(samples, func(s sample) float64 { return s.CPU }),
		Peak:    middle(samples, func(s sample) int64 { return s.Peak }),
		Written: middle(samples, func(s sample) int64 { return s.Written }),
		Handed:  middle(samples, func(s sample) int64 { return s.Handed }),
		Device:  middle(samples, func(s sample) int64 { return s.Device }),
		Fetched: middle(samples, func(s sample) int64 { return s.Fetched }),
		Serving: middle(samples, func(s sample) float64 { return s.Serving }),
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

func ratio(a, b int64) float64 { return quotient(float64(a), float64(b)) }

// quotient returns a/b, or 0 if b is 0.
func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func shown(q float64) string {
	if q == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", q)
}

func mb(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

func megabytes(n int64) string { return mb(n) + " MB" }
