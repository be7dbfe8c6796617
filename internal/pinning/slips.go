package pinning

import (
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// partitioning returns the kernel arguments that assign CPUs and memory, and others with nearly their names. Nothing reports
// a misspelt one: the kernel ignores what it does not know.
func partitioning() []string {
	return []string{"default_hugepagesz", "hugepages", "hugepagesz", "irqaffinity", "isolcpus", "kthread_cpus", "maxcpus", "mitigations",
		"nohz_full", "nosmap", "nosmep", "nosmp", "nosmt", "nr_cpus",
		"possible_cpus", "rcu_nocb_poll", "rcu_nocbs", "skew_tick", "smt-enabled", "systemd.cpu_affinity", "tuned.non_isolcpus"}
}

// misspelt warns about arguments with nearly the name of one that assigns CPUs or memory.
func (c *checker) misspelt(line kargs.Line) {
	for _, argument := range line {
		key, _, _ := strings.Cut(argument, "=")
		is := func(known string) bool { return key == known || strings.ReplaceAll(key, "-", "_") == known }
		if slices.ContainsFunc(partitioning(), is) {
			continue
		}
		if i := slices.IndexFunc(partitioning(), func(known string) bool { return problem.Nearly(key, known) }); i >= 0 {
			c.warn("", "%s: is %s meant? The kernel ignores an argument that it does not know", key, partitioning()[i])
		}
	}
}

// The kernel reads what begins like a number, and ignores the rest.
var (
	pageSize  = regexp.MustCompile(`^([0-9]+)([KMGkmg]?)$`)
	pageCount = regexp.MustCompile(`^([0-9]+|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)$`)
)

// hugePages checks the arguments for huge pages: each number is of the size before it, and without one of the default size.
func (c *checker) hugePages(line kargs.Line) {
	open := "" // a size without a number
	unnumbered := func() {
		if open != "" {
			c.warn("", "%s: no hugepages= follows it, so it reserves no page: a number belongs after its size", open)
		}
		open = ""
	}
	for _, argument := range line {
		key, value, _ := strings.Cut(argument, "=")
		switch key {
		case "hugepagesz":
			unnumbered()
			open = argument
			c.pageSize(argument, value)
		case "default_hugepagesz":
			c.pageSize(argument, value)
		case "hugepages":
			if open = ""; !pageCount.MatchString(value) {
				c.warn("", "%s: it is not a number of pages, or a list of NODE:NUMBER", argument)
			}
		}
	}
	unnumbered()
}

// pageSize warns about a size that no kernel has: each is a power of two, from 64 KiB to 16 GiB.
func (c *checker) pageSize(argument, value string) {
	parts := pageSize.FindStringSubmatch(value)
	if parts != nil {
		number, err := strconv.ParseUint(parts[1], 10, 40)
		size := number << (10 * (1 + strings.Index("KMG", strings.ToUpper(parts[2])))) // none: index 0 of ""
		if parts[2] == "" {
			size = number
		}
		if err == nil && bits.OnesCount64(size) == 1 && size >= 64<<10 && size <= 16<<30 {
			return
		}
	}
	c.warn("", "%s: it is not the size of a huge page, such as 2M or 1G", argument)
}
