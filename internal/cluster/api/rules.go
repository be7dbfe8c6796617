package api

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The pools that every cluster has.
const (
	MasterPool = "master"
	WorkerPool = "worker"
)

// PoolsOf returns the pools that claim a node with these labels: see ClaimedBy.
func PoolsOf(node map[string]string, all []MachineConfigPool) []string {
	var selecting []string
	for _, p := range all {
		if Selects(p.Spec.NodeSelector, node) {
			selecting = append(selecting, p.Name)
		}
	}
	return ClaimedBy(selecting)
}

// Selects reports whether a selector matches labels. An empty one matches nothing, as the operator reads it.
func Selects(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(of))
}

// ClaimedBy returns the pools that claim a node, of those with a selector that selects it: master before all others, a
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

// JudgedSystem is what is judged of a NodeSystem.
type JudgedSystem struct {
	Current    string   // the MachineConfig of the running system
	BootID     string   // of the boot that the rest is about
	Missing    []string // kernel arguments
	Different  bool     // the running system differs from its MachineConfig
	Difference string   // the first one
	Download   *EarlyDownload
}

// SystemOf returns what is judged of a NodeSystem; nil if no agent has written it, as for a node of the
// machine-config-daemon.
func SystemOf(s NodeSystemStatus) *JudgedSystem {
	if s.AgentVersion == "" {
		return nil
	}
	out := &JudgedSystem{Current: s.Config.Current, BootID: s.BootID, Missing: s.KernelArguments.Missing, Download: s.Download}
	if s.Proof != nil && !s.Proof.OK {
		out.Different = true
		if len(s.Proof.Differences) > 0 {
			out.Difference = s.Proof.Differences[0]
		}
	}
	return out
}

// Unproven returns what speaks against a node that says that it has the configuration current, such as "lacks the
// kernel argument a"; "" if nothing does. bootID is that of the Node: a statement about an earlier boot holds no more.
func (s *JudgedSystem) Unproven(current, bootID string) string {
	switch {
	case s == nil:
	case s.BootID != "" && bootID != "" && s.BootID != bootID:
		return "has booted, and its agent has not reported since"
	case s.Current != current:
		return fmt.Sprintf("says that it has %s, and its system is %q", current, s.Current)
	case len(s.Missing) > 0:
		return "lacks the kernel argument " + strings.Join(s.Missing, ", ")
	case s.Different:
		return strings.TrimSuffix("differs from "+current+": "+s.Difference, ": ")
	}
	return ""
}

// HasConfig reports whether a node has a configuration: it says so in its annotations, and nothing speaks against it. Who
// shows how far a rollout is counts as who decides about it.
func HasConfig(config string, annotations map[string]string, unproven string) bool {
	return config != "" && annotations[DesiredConfig] == config && annotations[CurrentConfig] == config &&
		annotations[StateOfNode] == StateDone && unproven == ""
}

// Membership is how a node belongs to its pool.
type Membership int

// The memberships.
const (
	Member    Membership = iota // it has a desired configuration
	NotTaken                    // it was never given any: PoolRolloutSpec.Adopt decides about it
	LeftAlone                   // an administrator does not want it to be maintained
)

// MembershipOf returns how a node belongs to its pool. Who shows a pool counts as who decides about it.
func MembershipOf(labels, annotations map[string]string) Membership {
	switch {
	case annotations[DesiredConfig] != "":
		return Member
	case annotations[CurrentConfig] != "", labels[AgentLabel] == "off":
		return LeftAlone
	}
	return NotTaken
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
	n, ok := partOf(nodes, *v)
	if !ok {
		return 1, fmt.Errorf("spec.maxUnavailable is %q, which counts as 1; it is a number, or a percentage from 0%% to 100%%", v.String())
	}
	return max(n, 1), nil
}

// MostDownloads returns how many nodes of a pool may download a configuration before their turn at a time, by
// the spec.parallelDownloads of its rollout, and what is wrong with that. Each percentage but 0% is at least one
// node. A wrong setting counts as 0.
func MostDownloads(setting *intstr.IntOrString, nodes int) (most int, problem error) {
	if setting == nil {
		return 0, nil
	}
	n, ok := partOf(nodes, *setting)
	switch {
	case !ok:
		return 0, fmt.Errorf("spec.parallelDownloads is %q, which counts as 0; it is a number, or a percentage from 0%% to 100%%", setting.String())
	case n == 0 && setting.Type == intstr.String && strings.Trim(setting.StrVal, "0%") != "":
		return 1, nil
	}
	return n, nil
}

// partOf returns a number, or a percentage of a number of nodes, rounded down.
func partOf(nodes int, v intstr.IntOrString) (n int, ok bool) {
	if v.Type == intstr.Int {
		return int(v.IntVal), v.IntVal >= 0
	}
	digits, percent := strings.CutSuffix(v.StrVal, "%")
	parsed, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil, percent && parsed > 100:
		return 0, false
	case percent:
		parsed = parsed * uint64(nodes) / 100
	}
	return int(parsed), true
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
