package pinning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/kargs"
)

// Machine has the CPUs of a machine. If Present is empty, they are unknown.
type Machine struct {
	Present CPUSet `json:"present"` // online or offline
	Online  CPUSet `json:"online"`  // now
	// Cores are the sets of threads of each core with several, as far as they are online: the
	// kernel does not report offline siblings.
	Cores []CPUSet `json:"cores,omitempty"`
	// CoresKnown says that Cores was read: without it, CPUs that are threads of one core are not known.
	CoresKnown bool `json:"coresKnown"`
}

// CPUsOnly returns a machine of which only the CPUs are known, all online.
func CPUsOnly(present CPUSet) Machine { return Machine{Present: present, Online: present} }

func (m Machine) known() bool { return !m.Present.IsEmpty() }

// threadsUnknown reports whether an argument takes threads away, and which CPUs these are is not known: neither from the
// cores, nor from what an earlier boot has left offline.
func (m Machine) threadsUnknown(line kargs.Line) (arg string, unknown bool) {
	arg, _ = line.ThreadsOff()
	return arg, arg != "" && m.known() && !m.CoresKnown && m.Online.Equal(m.Present)
}

// absence is a set of CPUs that a kernel argument keeps offline.
type absence struct {
	cpus    CPUSet
	why     string
	certain bool // false if it depends on what the kernel detects
}

// absences returns the CPUs of m that will not be online after a boot with line.
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
		// CPUs that are offline now are assumed to be so because of an earlier nosmt.
		seconds := m.Present.Difference(m.Online)
		for _, core := range m.Cores {
			seconds = seconds.Union(core.Difference(core.first(1)))
		}
		all = append(all, absence{seconds, arg + " switches the second threads of all cores off", certain})
	}
	return slices.DeleteFunc(all, func(a absence) bool { return a.cpus.IsEmpty() })
}

// OnlineAfter returns the CPUs that will certainly be online after m has booted with line.
func (m Machine) OnlineAfter(line kargs.Line) CPUSet {
	online := m.Present
	for _, a := range m.absences(line) {
		if a.certain {
			online = online.Difference(a.cpus)
		}
	}
	return online
}

// siblings lists, for a message, the core of each of the CPUs that shares one.
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

// bootLimit returns the maximum number of CPUs that the kernel starts.
func bootLimit(line kargs.Line) (n int, arg string, ok bool) {
	if len(line.Values("nosmp")) > 0 {
		return 1, "nosmp", true
	}
	return lastNumber(line, "maxcpus")
}

// lastNumber returns the effective value of a numeric argument.
func lastNumber(line kargs.Line, key string) (n int, arg string, ok bool) {
	values := line.Values(key)
	if len(values) == 0 {
		return 0, "", false
	}
	value := values[len(values)-1]
	parsed, err := strconv.ParseUint(value, 0, 16)
	return int(parsed), key + "=" + value, err == nil
}
