package pinning

import "machine-pivot/kargs"

// infraKey is CRI-O's setting for the CPUs of the sandboxes of all pods and of
// what it runs itself. The node tuning operator sets it to the management set.
const infraKey = "infra_ctr_cpuset"

// infra holds infra_ctr_cpuset, if there is one, against the machine as it will be
// after it has booted with line, and against the management set. CRI-O does not
// start if it cannot parse the set, and no pod does if its CPUs are not there.
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
