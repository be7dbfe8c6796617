package configserver

import "machine-pivot/internal/cluster/api"

// choose returns the rendered MachineConfig of a new machine of a pool. It is the one that the pool's nodes should
// have, to save it a reboot, if any node has proven that. Else it is the last one that all of them had, and the machine
// is a part of the rollout. rollout may be nil. It returns "" if nothing is rendered yet.
//
// The machine-config operator's server decides by the counters, too, also by those of the configuration before,
// as long as its controller has not looked at a new one. Here the generation says which one they are about.
func choose(pool *api.MachineConfigPool, rollout *api.PoolRollout) string {
	wanted, last := pool.Spec.Configuration.Name, pool.Status.Configuration.Name
	counted := pool.Status.ObservedGeneration >= pool.Generation
	switch {
	case last == "": // a new pool: there is no other one
		return wanted
	case wanted == "":
		return last
	case rollout != nil && rollout.Status.GivenUp == wanted:
		return last
	case counted && (pool.Status.UpdatedMachineCount > 0 || pool.Status.MachineCount == 0): // no node could prove it before this machine
		return wanted
	}
	return last
}
