package rollout_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
	"machine-pivot/test/worlds/simnodes"
)

// What people do in a simulation, and what they want of their pools.

// settings chooses how a pool is rolled out.
func (s *simulation) settings(pool string) {
	percent := intstr.FromString(fmt.Sprintf("%d%%", 5+s.rand.IntN(40)))
	number := intstr.FromInt32(int32(s.rand.IntN(4)))
	s.changePool(pool, func(p *rollout.Pool) {
		p.MaxUnavailable, s.limits[pool] = &number, &simnodes.Limit{Number: number.IntValue()}
		if s.rand.IntN(2) == 0 {
			n, _ := strconv.Atoi(strings.TrimSuffix(percent.StrVal, "%"))
			p.MaxUnavailable, s.limits[pool] = &percent, &simnodes.Limit{Percent: n}
		}
		if pool == "master" {
			s.limits[pool] = &simnodes.Limit{Number: 1}
		}
	})
	s.workloads[workloadOf(pool)] = ""
	s.changeSettings(pool, func(spec *api.PoolRolloutSpec) {
		*spec = api.PoolRolloutSpec{Canary: int32(s.rand.IntN(3)), StopAfter: int32(s.rand.IntN(4)), ReturnToLastGood: s.rand.IntN(2) == 0}
		spec.Adopt = s.rand.IntN(3) > 0
		spec.ParallelDownloads, s.loads[pool] = s.parallel()
		spec.Soak = v1.Duration{Duration: time.Duration(s.rand.IntN(30)) * time.Minute}
		if s.rand.IntN(4) == 0 && pool != "master" {
			spec.After = []string{"master"}
		}
		if s.rand.IntN(3) == 0 {
			spec.Window = s.window()
		}
		if s.rand.IntN(3) == 0 {
			spec.Checks.Node = expressionOfGPU
		}
		if s.rand.IntN(3) == 0 {
			spec.Checks.Workloads = []api.WorkloadReference{workloadOf(pool)}
		}
		if s.rand.IntN(6) == 0 {
			spec.Hooks.BeforeDrain = &api.HookReference{Namespace: "ops", Name: "prepare"}
		}
		if s.rand.IntN(6) == 0 {
			spec.Hooks.AfterProof = &api.HookReference{Namespace: "ops", Name: "check"}
		}
		if s.rand.IntN(8) == 0 {
			spec.WorkingLimit, spec.PassSlotOn = v1.Duration{Duration: time.Duration(20+s.rand.IntN(40)) * time.Minute}, s.rand.IntN(3) > 0
		}
	})
}

// changeSettings changes the spec of a PoolRollout, and creates that if there is none.
func (s *simulation) changeSettings(pool string, change func(spec *api.PoolRolloutSpec)) {
	s.changeRollout(pool, func(p *rollout.Pool) { change(&p.Spec) })
}

// window chooses a window that opens or closes during the faults, which begin at 12:00 on a Tuesday.
func (s *simulation) window() string {
	from := 12*60 + s.rand.IntN(200)
	to := from + 30 + s.rand.IntN(120)
	if s.rand.IntN(3) == 0 {
		from, to = to, from // over midnight
	}
	return fmt.Sprintf("Mon,Tue %02d:%02d-%02d:%02d UTC", from/60, from%60, to/60, to%60)
}

// parallel chooses how many nodes of a pool may download at a time: a number or a percentage.
func (s *simulation) parallel() (*intstr.IntOrString, *simnodes.Limit) {
	n := s.rand.IntN(5)
	v, l := intstr.FromInt32(int32(n)), &simnodes.Limit{Number: n}
	if n == 4 {
		v, l = intstr.FromString("20%"), &simnodes.Limit{Percent: 20}
	}
	return &v, l
}

// workloadOf returns the Deployment that may be among the checks of a pool.
func workloadOf(pool string) api.WorkloadReference {
	return api.WorkloadReference{Kind: "Deployment", Namespace: "shop", Name: pool}
}

// administrator does what people do: other configurations, cordons, deletions, joins, moves; and what they check
// breaks and works again.
func (s *simulation) administrator() {
	names := slices.Sorted(maps.Keys(s.memory.nodes))
	name, pool := names[s.rand.IntN(len(names))], s.order[s.rand.IntN(3)]
	n := s.memory.nodes[name]
	switch s.rand.IntN(150) {
	case 0, 1:
		s.release(pool)
	case 2:
		if n.Annotations[api.CordonedFor] == "" {
			s.change(name, func(n *rollout.Node) { n.Cordoned = !n.Cordoned })
		}
	case 3:
		if s.poolOf(n) != "master" && len(names) > 12 {
			delete(s.memory.nodes, name)
			delete(s.machines, name)
			delete(s.begun, name)
		}
	case 4:
		if len(names) < 20 {
			s.join(fmt.Sprintf("n%02d", 20+s.rand.IntN(60)), "worker", false)
		}
	case 5:
		s.changePool("worker", func(p *rollout.Pool) { p.Paused, p.Version = !p.Paused, s.next() })
	case 6, 7:
		s.move(name)
	case 8:
		s.deleteRollout(pool)
	case 9:
		s.changePool("infra", func(p *rollout.Pool) { p.Orphan, p.Version = !p.Orphan, s.next() })
	case 10:
		s.change(name, func(n *rollout.Node) { toggle(n.Annotations, lacksGPU) })
	case 12:
		s.machines[name].BootByHand()
	case 13:
		s.backUp()
	case 14:
		s.restore()
	case 15:
		if s.denied[name] = !s.denied[name]; s.denied[name] {
			s.faults["denied"]++
		}
	case 11:
		s.workloads[workloadOf(pool)] = map[string]string{"": "1 pod missing"}[s.workloads[workloadOf(pool)]]
	}
}

// runJobs lets Jobs end, and fail, while there are faults.
func (s *simulation) runJobs() {
	for _, job := range slices.Sorted(maps.Keys(s.jobs)) {
		switch state := s.jobs[job]; {
		case state.Done || state.Failure != "" || s.rand.IntN(3) > 0:
		case !s.calm && s.rand.IntN(20) == 0:
			s.jobs[job] = rollout.JobState{Exists: true, Failure: "DeadlineExceeded"}
		default:
			s.jobs[job] = rollout.JobState{Exists: true, Done: true}
		}
	}
}

// move lets a node be one of infra, or of infra no more. Nodes of the control plane stay.
func (s *simulation) move(name string) {
	if _, master := s.memory.nodes[name].Labels[role("master")]; !master {
		s.change(name, func(n *rollout.Node) { toggle(n.Labels, role("infra")) })
	}
}

func toggle(in map[string]string, name string) {
	if _, ok := in[name]; ok {
		delete(in, name)
	} else {
		in[name] = ""
	}
}

// release gives a pool another configuration, or the first one again. Some do not work on some nodes.
func (s *simulation) release(pool string) {
	config := fmt.Sprintf("rendered-%s-%d", pool, 1+s.rand.IntN(4))
	if bad := s.rand.IntN(3); bad < 2 && config != "rendered-"+pool+"-1" {
		for _, name := range slices.Sorted(maps.Keys(s.machines)) {
			if c := s.machines[name]; bad == 0 && s.rand.IntN(6) == 0 {
				c.Fails(config)
			} else if bad == 1 && s.rand.IntN(12) == 0 {
				c.Kills(config)
				s.faults["dead kubelet"]++
			}
		}
	}
	s.rollOut(pool, config)
}

// rollOut names a configuration in a pool.
func (s *simulation) rollOut(pool, config string) {
	s.targets[pool][config] = true
	s.changePool(pool, func(p *rollout.Pool) { p.Configuration.Name, p.Version = config, s.next() })
}
