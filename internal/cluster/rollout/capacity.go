package rollout

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxUnavailable returns how many nodes of a pool may be unavailable at a time, and what is wrong with the
// setting. A wrong one counts as 1, as does one that would let no node begin. Nodes of the control plane are
// changed one at a time, whatever the setting is.
func maxUnavailable(p *Pool, nodes int) (most int, problem error) {
	most, problem = parseMaxUnavailable(p.MaxUnavailable, nodes)
	if p.Name == master {
		most = 1
	}
	return most, problem
}

func parseMaxUnavailable(v *intstr.IntOrString, nodes int) (int, error) {
	if v == nil {
		return 1, nil
	}
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return 1, wrongMaxUnavailable(v)
		}
		return max(int(v.IntVal), 1), nil
	}
	digits, percent := strings.CutSuffix(v.StrVal, "%")
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil, percent && n > 100:
		return 1, wrongMaxUnavailable(v)
	case percent:
		n = n * uint64(nodes) / 100
	}
	return max(int(n), 1), nil
}

func wrongMaxUnavailable(v *intstr.IntOrString) error {
	return fmt.Errorf("spec.maxUnavailable is %q, which counts as 1; it is a number, or a percentage from 0%% to 100%%", v.String())
}

// room returns how many nodes of a pool may begin: of those that serve, and of those that have failed with
// another configuration than the target. Such a node is unavailable already, so that it takes no room from
// itself; but no more than maxUnavailable have slots.
func (v *view) room() (serving, failed int) {
	held, down, broken := len(v.taken), 0, 0
	for i := range v.members {
		switch m := &v.members[i]; {
		case m.taken:
		case m.elsewhere:
			down++
		case v.isFailedCandidate(m):
			broken++
		case m.why != "":
			down++
		}
	}
	return max(v.most-held-down-broken, 0), max(v.most-held-down, 0)
}
