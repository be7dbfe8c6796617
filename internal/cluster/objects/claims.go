package objects

// The pools that every cluster has.
const (
	MasterPool = "master"
	WorkerPool = "worker"
)

// ClaimedBy returns the pools that claim a node, of those whose selector selects it: master before all others, a
// custom pool before worker. Several are a contradiction; none claims a node that no selector selects.
func ClaimedBy(selecting []string) (pools []string) {
	isWorker := false
	for _, name := range selecting {
		switch name {
		case MasterPool:
			return []string{MasterPool}
		case WorkerPool:
			isWorker = true
		default:
			pools = append(pools, name)
		}
	}
	if len(pools) == 0 && isWorker {
		return []string{WorkerPool}
	}
	return pools
}
