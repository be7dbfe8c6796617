package main

import (
	"math"
	"testing"
)

// TestCompare compares systems of one large and some small packages, which are a layer each.
func TestCompare(t *testing.T) {
	small := total - unpackaged
	for _, size := range large {
		small -= size
	}
	for name, c := range map[string]struct {
		from, to        locked
		changed, single float64
	}{
		"same":    {locked{"podman": "1", "a": "1"}, locked{"podman": "1", "a": "1"}, 0, small + 50},
		"large":   {locked{"podman": "1", "a": "1"}, locked{"podman": "2", "a": "1"}, 0.5, small},
		"removed": {locked{"podman": "1", "a": "1", "b": "1"}, locked{"podman": "1", "a": "1"}, 0, small + 50},
		"new":     {locked{"podman": "1"}, locked{"podman": "1", "a": "1"}, 0.5, 50},
	} {
		changed, single, packed := compare(c.from, c.to)
		if math.Abs(changed-c.changed) > 1e-9 || math.Abs(single*total-c.single) > 1e-6 || packed != single {
			t.Errorf("%s: %v changed, %v and %v MB", name, changed, single*total, packed*total)
		}
	}
}
