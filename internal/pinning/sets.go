package pinning

import "machine-pivot/kargs"

// reserved is the CPUs of the system's own work, with the name of what says so.
type reserved struct {
	in, name string // the file, and what it is called in messages
	cpus     CPUSet
}

// sets compares all sets that describe one partition. The reserved CPUs are those of management, or else kubelet's. Beside
// them are those that the kernel isolates, and those to which kernel and tuned keep the system's own work.
func (c *checker) sets(workloads Workloads, m manager, in Input) {
	r := reserved{in: c.definedIn[Management], name: ofWorkload(Management), cpus: workloads[Management]}
	if r.cpus.IsEmpty() {
		r = reserved{KubeletConfigPath, "reservedSystemCPUs", m.reserved}
	}
	if r.cpus.IsEmpty() {
		r = reserved{}
	}
	isolated, by := c.isolated(r.in, in.Line)
	c.differences(r, isolated, by, in)
	for _, key := range []string{"irqaffinity", "kthread_cpus"} {
		for _, value := range in.Line.Values(key) {
			c.housekeeping(r, key+"="+value, c.list(r.in, key, value), isolated, by)
		}
	}
	for _, value := range in.Line.Values("tuned.non_isolcpus") {
		cpus, err := parseMask(value)
		if err != nil {
			c.warn(r.in, "tuned.non_isolcpus: %v", err)
		} else if !r.cpus.IsEmpty() && !cpus.Equal(r.cpus) {
			c.warn(r.in, "%s: its CPUs are %s, but tuned.non_isolcpus=%s is the mask of %s", r.name, r.cpus, value, cpus)
		}
	}
	if both := m.reserved.Intersection(isolated); !both.IsEmpty() {
		c.warn(KubeletConfigPath, "reservedSystemCPUs: CPU %s is also in %s", both, by)
	}
}

// isolated returns the CPUs that isolcpus isolates, or else nohz_full, with the argument.
func (c *checker) isolated(in string, line kargs.Line) (CPUSet, string) {
	for _, key := range []string{"isolcpus", "nohz_full"} {
		if value, ok := last(line, key); ok {
			_, list := isolationFlags(value)
			return c.list(in, key, list), key + "=" + value
		}
	}
	return CPUSet{}, ""
}

// last returns the last value of an argument, unless it is empty.
func last(line kargs.Line, key string) (value string, ok bool) {
	values := line.Values(key)
	if len(values) == 0 {
		return "", false
	}
	value = values[len(values)-1]
	return value, value != ""
}

// differences warns about CPUs that only one of several arguments isolates, and about those of the machine that are neither
// isolated nor reserved.
func (c *checker) differences(r reserved, isolated CPUSet, by string, in Input) {
	if isolated.IsEmpty() {
		return
	}
	for _, key := range []string{"nohz_full", "rcu_nocbs"} {
		value, ok := last(in.Line, key)
		if !ok {
			continue
		}
		other := c.list(r.in, key, value)
		if one := isolated.Union(other).Difference(isolated.Intersection(other)).Difference(r.cpus); !one.IsEmpty() {
			c.warn(r.in, "%s and %s=%s describe one partition and differ: CPU %s is in one of them only", by, key, value, one)
		}
	}
	if none := in.Machine.OnlineAfter(in.Line).Difference(isolated.Union(r.cpus)); !r.cpus.IsEmpty() && !none.IsEmpty() {
		c.warn(r.in, "CPU %s is in no set: neither in %s nor in %s", none, r.name, by)
	}
}

// housekeeping warns if an argument puts the kernel's own work on CPUs that are not reserved, or that are isolated.
func (c *checker) housekeeping(r reserved, argument string, cpus, isolated CPUSet, by string) {
	if outside := cpus.Difference(r.cpus); !r.cpus.IsEmpty() && !outside.IsEmpty() {
		c.warn(r.in, "%s: %s puts the kernel's own work also on CPU %s, which is not in its set %s", r.name, argument, outside, r.cpus)
	} else if both := cpus.Intersection(isolated); r.cpus.IsEmpty() && !both.IsEmpty() {
		c.warn(r.in, "%s puts the kernel's own work also on CPU %s of %s", argument, both, by)
	}
}
