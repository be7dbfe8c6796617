package pinning

import "machine-pivot/kargs"

// infraKey is CRI-O's setting for the CPUs of all pods' sandboxes and of its own processes. The
// node tuning operator sets it to the management set.
const infraKey = "infra_ctr_cpuset"

// infra checks infra_ctr_cpuset, if set, against the machine as it will be after a boot with
// line, and against the management set. CRI-O does not start if it cannot parse the set, and
// pods do not start if its CPUs are missing.
func (c *checker) infra(line kargs.Line) {
	if c.infraIn == "" {
		return
	}
	set, err := ParseCPUSet(c.infraSet)
	if err != nil {
		c.wrong(c.infraIn, "%s: %v", infraKey, err)
		return
	}
	c.present(c.infraIn, infraKey, set)
	c.offline(c.infraIn, infraKey, set, line)
	management := c.effective[Management].cpus
	if !set.IsEmpty() && !management.IsEmpty() && !set.Equal(management) {
		c.warn(c.infraIn, "%s is %q, but the CPUs of %s are %q", infraKey, set, ofWorkload(Management), management)
	}
}
