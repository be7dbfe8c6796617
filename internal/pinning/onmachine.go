package pinning

import (
	"strings"

	"machine-pivot/kargs"
)

// onMachine checks a workload's CPUs against the machine as it will be after a boot with line.
func (c *checker) onMachine(p, name string, set CPUSet, line kargs.Line) {
	c.offline(p, ofWorkload(name), set, line)
	c.bootCPU(p, name, set)
	c.isolation(p, name, set, line)
	c.affinity(p, name, set, line)
}

// offline reports CPUs that will be offline after the reboot, or are offline now.
func (c *checker) offline(p, what string, set CPUSet, line kargs.Line) {
	if !c.machine.known() {
		return
	}
	for _, a := range c.machine.absences(line) {
		lost := set.Intersection(a.cpus)
		if lost.IsEmpty() {
			continue
		}
		if a.certain {
			c.wrong(p, "%s: CPU %s will be offline after the reboot: %s%s", what, lost, a.why, c.machine.siblings(lost))
		} else {
			c.warn(p, "%s: CPU %s may be offline after the reboot: %s, if the CPU is vulnerable%s", what, lost, a.why, c.machine.siblings(lost))
		}
	}
	after := c.machine.OnlineAfter(line)
	if off := set.Intersection(after).Difference(c.machine.Online); !off.IsEmpty() {
		c.warn(p, "%s: CPU %s is offline now; the next boot must bring it up", what, off)
	}
}

// bootCPU warns if a workload lacks the boot CPU, which no argument can isolate.
func (c *checker) bootCPU(p, name string, set CPUSet) {
	if first := c.machine.Present.first(1); c.machine.known() && !set.IsEmpty() && set.Intersection(first).IsEmpty() {
		c.warn(p, "%s: CPU %s, which the machine boots on, is not in its set %s; it can never be isolated from the system's own work", ofWorkload(name), first, set)
	}
}

// isolation warns about CPUs that the command line excludes from scheduling: they are meant for
// dedicated pods, not for a workload with many.
func (c *checker) isolation(p, name string, set CPUSet, line kargs.Line) {
	for _, value := range line.Values("isolcpus") {
		flags, list := isolationFlags(value)
		isolated := c.list(p, "isolcpus", list)
		if hit := set.Intersection(isolated); flags["domain"] && !hit.IsEmpty() {
			c.warn(p, "workload %q: CPU %s is isolated by isolcpus=%s: the kernel does not balance load there, so each container stays on one CPU", name, hit, value)
		}
	}
	for _, key := range []string{"nohz_full", "rcu_nocbs"} {
		for _, value := range line.Values(key) {
			if hit := set.Intersection(c.list(p, key, value)); !hit.IsEmpty() {
				c.warn(p, "workload %q: CPU %s is in %s=%s, which is meant for dedicated CPUs", name, hit, key, value)
			}
		}
	}
}

// isolationFlags splits the flags off a value of isolcpus. The default is the flag domain.
func isolationFlags(value string) (flags map[string]bool, list string) {
	flags = map[string]bool{}
	for {
		word, rest, more := strings.Cut(value, ",")
		if word != "nohz" && word != "domain" && word != "managed_irq" || !more {
			break
		}
		flags[word] = true
		value = rest
	}
	if len(flags) == 0 {
		flags["domain"] = true
	}
	return flags, value
}

// list parses the CPU list of a kernel argument. What is wrong with it is reported once.
func (c *checker) list(p, key, value string) CPUSet {
	if value == "" {
		return CPUSet{}
	}
	if known, again := c.lists[key+"="+value]; again {
		return known
	}
	set, err := parseKernelList(value, c.machine.Present)
	if err != nil {
		c.warn(p, "%s: %v", key, err)
	}
	if c.machine.known() {
		last := c.machine.Present.cpus[c.machine.Present.Size()-1]
		if beyond := set.Difference(set.below(last + 1)); !beyond.IsEmpty() {
			c.warn(p, "%s=%s: the machine has no CPU %s, only %s", key, value, beyond, c.machine.Present)
		}
		set = set.Intersection(c.machine.Present)
	}
	c.lists[key+"="+value] = set
	return set
}

// affinity compares a workload's CPUs with the CPU affinity of systemd, which all services
// inherit, including CRI-O and kubelet; containers do not.
func (c *checker) affinity(p, name string, set CPUSet, line kargs.Line) {
	values := line.Values("systemd.cpu_affinity")
	if len(values) == 0 || set.IsEmpty() || name != Management {
		return
	}
	value := values[len(values)-1]
	if value == "" || value == "numa" {
		return
	}
	cpus := c.list(p, "systemd.cpu_affinity", strings.Join(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' }), ","))
	if !cpus.IsEmpty() && !cpus.Equal(set) {
		c.warn(p, "workload %q: its CPUs are %s, but systemd.cpu_affinity keeps CRI-O, kubelet and all other services on %s", name, set, cpus)
	}
}
