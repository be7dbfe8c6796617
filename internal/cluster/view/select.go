package view

import "machine-pivot/internal/cluster/api"

// poolOf returns the pool of a node by its labels, as the fleet's controller decides it; "" if no pool claims the
// node, or several do.
func poolOf(of map[string]string, pools []api.MachineConfigPool) string {
	if claimed := api.PoolsOf(of, pools); len(claimed) == 1 {
		return claimed[0]
	}
	return ""
}
