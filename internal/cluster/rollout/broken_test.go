package rollout_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// broken is a product with one mistake, which the simulation must notice.
type broken struct {
	cas    func(kind string) bool
	before func(f *rollout.Fleet)
	after  func(f rollout.Fleet, d *rollout.Decision)
}

func brokenProducts() map[string]broken {
	kind := func(broken string) func(string) bool { return func(kind string) bool { return kind == broken } }
	eachPool := func(change func(p *rollout.Pool)) func(f *rollout.Fleet) {
		return func(f *rollout.Fleet) {
			for i := range f.Pools {
				change(&f.Pools[i])
			}
		}
	}
	return map[string]broken{
		"takes slots whatever the version is":        {cas: kind("take")},
		"gives configurations to old versions":       {cas: kind("give")},
		"gives slots back without changing the node": {cas: kind("no fence")},
		"asks old versions for downloads":            {cas: kind("ask")},
		"forgets who was asked for a download": {before: func(f *rollout.Fleet) {
			eachPool(func(p *rollout.Pool) { p.Rollout.Downloads = nil })(f)
			for i := range f.Nodes {
				f.Nodes[i].Annotations = maps.Clone(f.Nodes[i].Annotations)
				delete(f.Nodes[i].Annotations, api.Download)
			}
		}},
		"asks one node too many for a download": {before: eachPool(func(p *rollout.Pool) {
			if p.Spec.ParallelDownloads.IntVal > 0 {
				n := intstr.FromInt32(p.Spec.ParallelDownloads.IntVal + 1)
				p.Spec.ParallelDownloads = &n
			}
		})},
		"ignores the slots that are taken": {before: eachPool(func(p *rollout.Pool) { p.Rollout.Taken = nil })},
		"allows one node too many": {before: eachPool(func(p *rollout.Pool) {
			n := intstr.FromInt32(p.MaxUnavailable.IntVal + 2)
			p.MaxUnavailable = &n
		})},
		"believes what a node says": {before: func(f *rollout.Fleet) {
			for i := range f.Nodes {
				f.Nodes[i].System = nil
			}
		}},
		"retargets what an administrator has cordoned": {before: func(f *rollout.Fleet) {
			for i := range f.Nodes {
				f.Nodes[i].Cordoned = false
			}
		}},
		"says nothing": {after: func(_ rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				d.Pools[i].Rollout.Waiting = ""
			}
		}},
		"gives no slot back": {after: func(f rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				for _, n := range d.Pools[i].Released {
					d.Pools[i].Rollout.Taken = append(d.Pools[i].Rollout.Taken, n.Name)
				}
				d.Pools[i].Released = nil
			}
		}},
		"gives what is not the pool's": {after: func(_ rollout.Fleet, d *rollout.Decision) {
			for i := range d.Pools {
				if d.Pools[i].Rollout.Target != "" && len(d.Pools[i].Given) > 0 {
					d.Pools[i].Rollout.Target += "0"
				}
			}
		}},
	}
}

// decide is Decide with the mistake.
func (b broken) decide(f rollout.Fleet) rollout.Decision {
	if b.before != nil {
		f.Nodes, f.Pools = slices.Clone(f.Nodes), slices.Clone(f.Pools)
		b.before(&f)
	}
	d := rollout.Decide(f)
	if b.after != nil {
		b.after(f, &d)
	}
	return d
}

// TestBroken: the simulation notices each mistake.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	for name, b := range brokenProducts() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(seeds()) {
				s := newSimulation(seed, b.decide)
				s.ignoreCAS = b.cas
				if wrong := s.run(minutesOfFaults); wrong != "" && (b.cas == nil || strings.Contains(wrong, "limit")) {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Errorf("nothing is wrong in %d simulations", seeds())
		})
	}
}
