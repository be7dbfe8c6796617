package pinning

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/problem"
)

// parseKernelList parses a list of CPUs as in kernel parameters (admin-guide/kernel-parameters,
// "cpu lists"). Besides numbers and ranges, it may contain "all", "N" for the last CPU, and
// ranges of groups, FIRST-LAST:USED/GROUP, such as 0-15:2/4. possible are the CPUs that the
// kernel knows.
func parseKernelList(s string, possible CPUSet) (CPUSet, error) {
	last := MaxCPU
	if !possible.IsEmpty() {
		last = possible.cpus[possible.Size()-1]
	}
	var found []int
	for item := range strings.SplitSeq(s, ",") {
		cpus, err := parseKernelItem(item, last)
		if err != nil {
			return CPUSet{}, fmt.Errorf("cannot parse CPU list %s: %w", problem.Quoted(s), err)
		}
		if len(found)+len(cpus) > 8*MaxCPU {
			return CPUSet{}, fmt.Errorf("cannot parse CPU list %s: it names the same CPUs too often", problem.Quoted(s))
		}
		found = append(found, cpus...)
	}
	return newCPUSet(found), nil
}

// Mask returns the set as tuned writes it: a mask in hexadecimal digits, in groups of eight.
func (s CPUSet) Mask() string {
	bits := new(big.Int)
	for _, cpu := range s.List() {
		bits.SetBit(bits, cpu, 1)
	}
	digits := bits.Text(16)
	digits = strings.Repeat("0", (8-len(digits)%8)%8) + digits
	var groups []string
	for group := range slices.Chunk([]byte(digits), 8) {
		groups = append(groups, string(group))
	}
	return strings.Join(groups, ",")
}

// parseMask is the inverse of Mask.
func parseMask(s string) (CPUSet, error) {
	digits := strings.ReplaceAll(s, ",", "")
	var found []int
	for i := range len(digits) {
		nibble, err := strconv.ParseUint(digits[len(digits)-1-i:len(digits)-i], 16, 8)
		if err != nil || 4*i > MaxCPU {
			return CPUSet{}, fmt.Errorf("cannot parse the mask of CPUs %s", problem.Quoted(s))
		}
		for bit := range 4 {
			if nibble&(1<<bit) != 0 {
				found = append(found, 4*i+bit)
			}
		}
	}
	return newCPUSet(found), nil
}

// parseKernelItem parses one item of a list; last is the last CPU.
func parseKernelItem(item string, last int) ([]int, error) {
	item, pattern, grouped := strings.Cut(item, ":")
	used, group := 1, 1
	if grouped {
		text, size, _ := strings.Cut(pattern, "/")
		var errUsed, errGroup error
		used, errUsed = strconv.Atoi(text)
		group, errGroup = strconv.Atoi(size)
		if errUsed != nil || errGroup != nil || used < 0 || group < 1 || used > group {
			return nil, fmt.Errorf("%s is not USED/GROUP", problem.Quoted(pattern))
		}
	}
	if strings.EqualFold(item, "all") {
		item = "0-N"
	}
	first, end, err := parseRange(item, func(text string) (int, error) { return parseKernelCPU(text, last) })
	if err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := first; cpu <= end; cpu++ {
		if (cpu-first)%group < used {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func parseKernelCPU(text string, last int) (int, error) {
	if text == "N" {
		return last, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > MaxCPU {
		return 0, fmt.Errorf("%s is not a CPU number up to %d", problem.Quoted(text), MaxCPU)
	}
	return int(n), nil
}
