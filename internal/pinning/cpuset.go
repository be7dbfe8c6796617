// Package pinning implements CPU partitioning: sets of CPUs, and the two files that pin the
// pods of a workload to a set, one for CRI-O and one for kubelet. It does no I/O.
//
// Sources: CRI-O's pkg/config/workloads.go, k8s.io/utils/cpuset, and the enhancement
// "management workload partitioning".
package pinning

import (
	"errors"
	"fmt"
	"machine-pivot/internal/problem"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU is the highest CPU number in a set. No supported kernel is built for more
// (CONFIG_NR_CPUS).
const MaxCPU = 8191

// CPUSet is an immutable set of CPU numbers. The zero value is the empty set.
type CPUSet struct {
	cpus []int // sorted, without duplicates
}

// ParseCPUSet parses a set as CRI-O and kubelet do: numbers and ranges such as "0-1,52-53",
// without white space; "" is the empty set. Unlike them, it rejects signs and leading zeros,
// and numbers above MaxCPU before it expands a range.
func ParseCPUSet(s string) (CPUSet, error) {
	if s == "" {
		return CPUSet{}, nil
	}
	var cpus []int
	for item := range strings.SplitSeq(s, ",") {
		first, last, err := parseRange(item, parseCPU)
		if err != nil {
			return CPUSet{}, fmt.Errorf("cannot parse CPU set %s: %w", problem.Quoted(s), err)
		}
		if len(cpus)+last-first > 8*MaxCPU {
			return CPUSet{}, fmt.Errorf("cannot parse CPU set %s: it names the same CPUs too often", problem.Quoted(s))
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return newCPUSet(cpus), nil
}

// newCPUSet returns a set of the given CPUs. It takes ownership of the slice.
func newCPUSet(cpus []int) CPUSet {
	slices.Sort(cpus)
	return CPUSet{slices.Compact(cpus)}
}

// parseRange parses a number or a range.
func parseRange(item string, parse func(string) (int, error)) (first, last int, err error) {
	from, to, isRange := strings.Cut(item, "-")
	if first, err = parse(from); err != nil || !isRange {
		return first, first, err
	}
	if last, err = parse(to); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("invalid range %q (%d > %d)", item, first, last)
	}
	return first, last, nil
}

func parseCPU(text string) (int, error) {
	switch {
	case text == "":
		return 0, errors.New("a number is missing")
	case strings.Trim(text, "0123456789") != "":
		return 0, fmt.Errorf("%s is not a number", problem.Quoted(text))
	case text[0] == '0' && text != "0":
		return 0, fmt.Errorf("%s has a leading zero", problem.Quoted(text))
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > MaxCPU {
		return 0, fmt.Errorf("CPU %s is beyond %d", problem.Quoted(text), MaxCPU)
	}
	return n, nil
}

// String returns the canonical form: sorted, with adjacent numbers as ranges.
func (s CPUSet) String() string {
	var items []string
	for i := 0; i < len(s.cpus); {
		j := i
		for j+1 < len(s.cpus) && s.cpus[j+1] == s.cpus[j]+1 {
			j++
		}
		item := strconv.Itoa(s.cpus[i])
		if j > i {
			item += "-" + strconv.Itoa(s.cpus[j])
		}
		items, i = append(items, item), j+1
	}
	return strings.Join(items, ",")
}

// MarshalText returns the canonical form.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *CPUSet) UnmarshalText(text []byte) (err error) {
	*s, err = ParseCPUSet(string(text))
	return err
}

// List returns the CPUs in ascending order.
func (s CPUSet) List() []int { return slices.Clone(s.cpus) }

// Size returns the number of CPUs.
func (s CPUSet) Size() int { return len(s.cpus) }

// IsEmpty reports whether the set is empty.
func (s CPUSet) IsEmpty() bool { return len(s.cpus) == 0 }

// Equal reports whether both sets have the same CPUs.
func (s CPUSet) Equal(other CPUSet) bool { return slices.Equal(s.cpus, other.cpus) }

// Contains reports whether the set contains a CPU.
func (s CPUSet) Contains(cpu int) bool {
	_, found := slices.BinarySearch(s.cpus, cpu)
	return found
}

// Difference returns the CPUs in s that are not in other.
func (s CPUSet) Difference(other CPUSet) CPUSet {
	return CPUSet{slices.DeleteFunc(s.List(), other.Contains)}
}

// Intersection returns the CPUs in both sets.
func (s CPUSet) Intersection(other CPUSet) CPUSet {
	return CPUSet{slices.DeleteFunc(s.List(), func(cpu int) bool { return !other.Contains(cpu) })}
}

// Union returns the CPUs in either set.
func (s CPUSet) Union(other CPUSet) CPUSet { return newCPUSet(slices.Concat(s.cpus, other.cpus)) }

// below returns the CPUs in s that are less than n.
func (s CPUSet) below(n int) CPUSet {
	return CPUSet{slices.DeleteFunc(s.List(), func(cpu int) bool { return cpu >= n })}
}

// first returns the n lowest CPUs of s.
func (s CPUSet) first(n int) CPUSet { return CPUSet{s.List()[:min(max(n, 0), len(s.cpus))]} }
