package objects

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

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

// MostUnavailable returns how many nodes of a pool may be unavailable at a time, by its spec.maxUnavailable, and
// what is wrong with that. A wrong setting counts as 1, as does one that would let no node begin. Nodes of the
// control plane are changed one at a time, whatever the setting is: etcd would lose its quorum otherwise.
func MostUnavailable(pool string, setting *intstr.IntOrString, nodes int) (most int, problem error) {
	most, problem = parseMostUnavailable(setting, nodes)
	if pool == MasterPool {
		most = 1
	}
	return most, problem
}

func parseMostUnavailable(v *intstr.IntOrString, nodes int) (int, error) {
	if v == nil {
		return 1, nil
	}
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return 1, wrongMostUnavailable(v)
		}
		return max(int(v.IntVal), 1), nil
	}
	digits, percent := strings.CutSuffix(v.StrVal, "%")
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil, percent && n > 100:
		return 1, wrongMostUnavailable(v)
	case percent:
		n = n * uint64(nodes) / 100
	}
	return max(int(n), 1), nil
}

func wrongMostUnavailable(v *intstr.IntOrString) error {
	return fmt.Errorf("spec.maxUnavailable is %q, which counts as 1; it is a number, or a percentage from 0%% to 100%%", v.String())
}

// Turn is what decides when a node's turn is.
type Turn struct {
	Name    string
	Labels  map[string]string
	Created time.Time
}

// Compare compares nodes by when their turn is: by zone, so that one zone at a time is disturbed, those without a
// zone last; then by age.
func (t Turn) Compare(other Turn) int {
	return cmp.Or(strings.Compare(t.zone(), other.zone()), t.Created.Compare(other.Created), strings.Compare(t.Name, other.Name))
}

func (t Turn) zone() string { return cmp.Or(t.Labels["topology.kubernetes.io/zone"], "\xff") }
