// Package figures is what the benchmarks share: medians, ratios, and sizes on the command line.
package figures

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Median returns the median, or the lower of the two middle values.
func Median[T cmp.Ordered](values []T) T {
	values = slices.Sorted(slices.Values(values))
	return values[(len(values)-1)/2]
}

// Middle returns the median of a figure over all samples.
func Middle[S any, T cmp.Ordered](samples []S, figure func(S) T) T {
	values := make([]T, len(samples))
	for n, s := range samples {
		values[n] = figure(s)
	}
	return Median(values)
}

// Quotient returns a/b, or 0 if b is 0.
func Quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// ParseSize parses a number of bytes with an optional suffix kB, MB or GB.
func ParseSize(text string) (int64, error) {
	factor := 1.0
	for unit, f := range map[string]float64{"kB": 1e3, "MB": 1e6, "GB": 1e9} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			text, factor = number, f
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	bytes := n * factor
	if err == nil && !(bytes >= 1e6 && bytes <= 1e15) { // also if it is not a number
		err = errors.New("not between 1MB and 1000000GB")
	}
	return int64(bytes), err
}
