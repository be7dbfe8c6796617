package pinning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/kargs"
)

// Machine is the CPUs of a machine. Without any present it is not known.
type Machine struct {
	Present CPUSet // that it has, online or not
	Online  CPUSet // now
	// Cores are the threads of each core that has several, as far as they are
	// online now: the kernel does not tell of the others.
	Cores []CPUSet
}

// CPUsOnly is a machine of which nothing is known but its CPUs.
func CPUsOnly(present CPUSet) Machine { return Machine{Present: present, Online: present} }

func (m Machine) known() bool { return !m.Present.IsEmpty() }

// absence is CPUs that a command line keeps from coming online.
type absence struct {
	cpus    CPUSet
	why     string
	certain bool // or depends on what the kernel finds
}

// absences are the CPUs of m that will be missing when it boots with line.
// Sources: the kernel's admin-guide/kernel-parameters, kernel/cpu.c.
func (m Machine) absences(line kargs.Line) []absence {
	var all []absence
	possible := m.Present
	for _, key := range []string{"nr_cpus", "possible_cpus"} {
		if n, arg, ok := lastNumber(line, key); ok && n > 0 {
			all = append(all, absence{possible.Difference(possible.below(n)), arg + " leaves CPUs from " + strconv.Itoa(n) + " on out", true})
			possible = possible.below(n)
		}
	}
	if n, arg, ok := bootLimit(line); ok {
		started := possible.first(max(n, 1)) // the boot CPU always runs
		all = append(all, absence{possible.Difference(started), arg + " starts " + strconv.Itoa(started.Size()) + " of them only", true})
	}
	if arg, certain := line.ThreadsOff(); arg != "" {
		// What is offline now is so by an earlier nosmt, as far as one can see.
		seconds := m.Present.Difference(m.Online)
		for _, core := range m.Cores {
			seconds = seconds.Union(core.Difference(core.first(1)))
		}
		all = append(all, absence{seconds, arg + " switches the second threads of all cores off", certain})
	}
	return slices.DeleteFunc(all, func(a absence) bool { return a.cpus.IsEmpty() })
}

// OnlineAfter is the CPUs that will be online for certain once m has booted with line.
func (m Machine) OnlineAfter(line kargs.Line) CPUSet {
	online := m.Present
	for _, a := range m.absences(line) {
		if a.certain {
			online = online.Difference(a.cpus)
		}
	}
	return online
}

// siblings names the threads that share a core with each of the CPUs.
func (m Machine) siblings(cpus CPUSet) string {
	var pairs []string
	for _, cpu := range cpus.List() {
		for _, core := range m.Cores {
			if core.Contains(cpu) {
				pairs = append(pairs, fmt.Sprintf("CPU %d is a thread of the core %s", cpu, core))
			}
		}
	}
	if len(pairs) == 0 {
		return ""
	}
	if more := len(pairs) - 8; more > 0 {
		pairs = append(pairs[:8], fmt.Sprintf("and %d more", more))
	}
	return " (" + strings.Join(pairs, ", ") + ")"
}

// bootLimit is the number of CPUs that the kernel starts at most.
func bootLimit(line kargs.Line) (n int, arg string, ok bool) {
	if len(line.Values("nosmp")) > 0 {
		return 1, "nosmp", true
	}
	return lastNumber(line, "maxcpus")
}

// lastNumber is the value that counts of an argument that is a number.
func lastNumber(line kargs.Line, key string) (n int, arg string, ok bool) {
	values := line.Values(key)
	if len(values) == 0 {
		return 0, "", false
	}
	value := values[len(values)-1]
	parsed, err := strconv.ParseUint(value, 0, 16)
	return int(parsed), key + "=" + value, err == nil
}
