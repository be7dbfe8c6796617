package rollout_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/rollout"
)

// loading is small, paused, with two downloads at a time.
func loading() *memory {
	m := small()
	two := intstr.FromInt32(2)
	m.changePool("worker", func(p *rollout.Pool) {
		p.Paused, p.Spec.ParallelDownloads, p.Rollout.Target = true, &two, "rendered-worker-2"
	})
	return m
}

// TestDownloads: who is asked for a download before its turn, and which downloads end, in each state of a fleet.
func TestDownloads(t *testing.T) {
	const old, target = "rendered-worker-1", "rendered-worker-2"
	pool := func(change func(p *rollout.Pool)) func(m *memory) {
		return func(m *memory) { m.changePool("worker", change) }
	}
	node := func(name string, change func(n *rollout.Node)) func(m *memory) {
		return func(m *memory) { m.change(name, change) }
	}
	parallel := func(v intstr.IntOrString) func(m *memory) {
		return pool(func(p *rollout.Pool) { p.Spec.ParallelDownloads = &v })
	}
	// asked is a node that was asked some time ago, and has said something since.
	asked := func(name string, ago time.Duration, says *api.EarlyDownload) func(m *memory) {
		return func(m *memory) {
			m.change(name, func(n *rollout.Node) {
				n.Annotations[api.Download] = target
				n.System = &api.JudgedSystem{Current: old, Download: says}
			})
			m.changePool("worker", func(p *rollout.Pool) {
				p.Rollout.Downloads = append(p.Rollout.Downloads, api.NodeDownload{Name: name, Since: v1.Time{Time: m.now.Add(-ago)}})
			})
		}
	}
	failed := func(ago time.Duration) func(m *memory) {
		return func(m *memory) {
			m.changePool("worker", func(p *rollout.Pool) {
				p.Rollout.Downloads = []api.NodeDownload{{Name: "n3", Since: v1.Time{Time: m.now.Add(-ago)}, Failure: "no space"}}
			})
		}
	}
	both := func(all ...func(m *memory)) func(m *memory) {
		return func(m *memory) {
			for _, change := range all {
				change(m)
			}
		}
	}
	done, bad := &api.EarlyDownload{Config: target}, &api.EarlyDownload{Config: target, Failure: "no space", FailedAt: loading().now}
	for name, c := range map[string]struct {
		change      func(m *memory)
		asks, ends  string // names of nodes
		known, says string // the entries of the PoolRollout, and a part of the sentence
	}{
		"paused, in the order of the turn": {func(*memory) {}, "n3 n2", "", "n3 n2", "paused; downloaded before their turn: 0, downloading: 2"},
		"window":                           {pool(func(p *rollout.Pool) { p.Paused, p.Spec.Window = false, "13:00-14:00 UTC" }), "n3 n2", "", "n3 n2", "which opens at"},
		"beside a rollout":                 {pool(func(p *rollout.Pool) { p.Paused = false }), "n2 n1", "", "n2 n1", "waits for n3"},
		"without a limit":                  {pool(func(p *rollout.Pool) { p.Spec.ParallelDownloads = nil }), "", "", "", "paused"},
		"none":                             {parallel(intstr.FromInt32(0)), "", "", "", "paused"},
		"half of four":                     {parallel(intstr.FromString("50%")), "n3 n2", "", "n3 n2", "paused"},
		"at least one":                     {parallel(intstr.FromString("1%")), "n3", "", "n3", "paused"},
		"no part":                          {parallel(intstr.FromString("0%")), "", "", "", "paused"},
		"no percentage":                    {parallel(intstr.FromString("all")), "", "", "", "paused"},
		"not rendered":                     {pool(func(p *rollout.Pool) { p.Configuration.Name = "" }), "", "", "", "is rendered"},
		"the target has failed": {both(pool(func(p *rollout.Pool) { p.Paused = false }), node("n0", func(n *rollout.Node) {
			n.Annotations[api.DesiredConfig], n.Annotations[api.StateOfNode] = target, api.StateDegraded
		})), "", "", "", "stopped"},
		"a node that is not Ready":      {node("n3", func(n *rollout.Node) { n.Problem = "is not Ready" }), "n2 n1", "", "n2 n1", ""},
		"a node without an agent":       {node("n3", func(n *rollout.Node) { n.System = nil }), "n2 n1", "", "n2 n1", ""},
		"a node in change":              {node("n3", func(n *rollout.Node) { n.Annotations[api.StateOfNode] = api.StateWorking }), "n2 n1", "", "n2 n1", ""},
		"a node that is cordoned":       {node("n3", func(n *rollout.Node) { n.Cordoned = true }), "n3 n2", "", "n3 n2", ""},
		"one has it":                    {node("n3", func(n *rollout.Node) { n.System = &api.JudgedSystem{Current: old, Download: done} }), "n2 n1", "", "n2 n1", "turn: 1, downloading: 2"},
		"one downloads":                 {asked("n3", time.Minute, nil), "n2", "", "n3 n2", "downloading: 2"},
		"one has downloaded":            {asked("n3", time.Minute, done), "n2 n1", "n3", "n2 n1", "turn: 1, downloading: 2"},
		"one has failed":                {asked("n3", time.Minute, bad), "n2 n1", "n3", "n3! n2 n1", "cannot download rendered-worker-2: n3: no space"},
		"one does not answer":           {asked("n3", time.Hour, nil), "n2 n1", "n3", "n3! n2 n1", "n3: no answer since 2026-11-24T11:00:00Z"},
		"one has failed before":         {asked("n3", time.Minute, &api.EarlyDownload{Config: target, Failure: "x", FailedAt: loading().now.Add(-time.Hour)}), "n2", "", "n3 n2", ""},
		"one is silent about another":   {asked("n3", time.Minute, &api.EarlyDownload{Config: old}), "n2", "", "n3 n2", ""},
		"not asked again at once":       {failed(59 * time.Minute), "n2 n1", "", "n3! n2 n1", "n3: no space"},
		"asked again":                   {failed(time.Hour), "n3 n2", "", "n3 n2", "downloading: 2"},
		"another target":                {both(asked("n3", 30*time.Minute, done), pool(func(p *rollout.Pool) { p.Configuration.Name = "rendered-worker-3" })), "n3 n2", "", "n3 n2", ""},
		"another target after failures": {both(failed(time.Minute), pool(func(p *rollout.Pool) { p.Configuration.Name = "rendered-worker-3" })), "n3 n2", "", "n3 n2", ""},
		"the policy is withdrawn":       {both(asked("n3", time.Minute, nil), parallel(intstr.FromInt32(0))), "", "n3", "", ""},
		"a smaller limit":               {both(asked("n3", time.Minute, nil), asked("n2", time.Minute, nil), parallel(intstr.FromInt32(1))), "", "", "n3 n2", ""},
		"its turn":                      {both(asked("n3", time.Minute, nil), pool(func(p *rollout.Pool) { p.Paused = false })), "n2", "", "n3 n2", ""},
		"it has begun":                  {both(asked("n3", time.Minute, nil), node("n3", func(n *rollout.Node) { n.Annotations[api.DesiredConfig] = target })), "n2 n1", "n3", "n2 n1", ""},
		"the request was lost":          {both(asked("n3", time.Minute, nil), node("n3", func(n *rollout.Node) { delete(n.Annotations, api.Download) })), "n3 n2", "", "n3 n2", ""},
		"the entries were lost":         {both(asked("n3", time.Minute, nil), pool(func(p *rollout.Pool) { p.Rollout.Downloads = nil })), "n3 n2", "", "n3 n2", ""},
		"the node is gone":              {both(asked("n3", time.Minute, nil), func(m *memory) { delete(m.nodes, "n3") }), "n2 n1", "n3?", "n2 n1", ""},
		"the node is of another pool":   {both(asked("n3", time.Minute, nil), node("n3", func(n *rollout.Node) { n.Labels[role("infra")] = "" })), "n2 n1", "n3", "n2 n1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := loading()
			c.change(m)
			f, _ := m.access("").Fleet(t.Context())
			d := rollout.Decide(f).Pools[0]
			if got := namesOf(d.Asked); got != c.asks {
				t.Errorf("asks %q, want %q", got, c.asks)
			}
			ends := namesOf(d.Released)
			for _, gone := range d.Gone {
				ends += gone + "?"
			}
			var known []string
			for _, e := range d.Rollout.Downloads {
				if e.Failure != "" {
					e.Name += "!"
				}
				known = append(known, e.Name)
			}
			if got := strings.Join(known, " "); ends != c.ends || got != c.known || !strings.Contains(d.Rollout.Waiting, c.says) {
				t.Errorf("ends %q, want %q; knows %q, want %q; says %q", ends, c.ends, got, c.known, d.Rollout.Waiting)
			}
			if (d.Rollout.Round > 0) != (len(d.Asked)+len(d.Given) > 0) {
				t.Errorf("the round is %d", d.Rollout.Round)
			}
		})
	}
}

func namesOf(nodes []rollout.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

// TestManyFailures: what twenty nodes cannot download, no other one is asked for.
func TestManyFailures(t *testing.T) {
	m := loading()
	m.changePool("worker", func(p *rollout.Pool) {
		for i := range 20 {
			name := "m" + string(rune('a'+i))
			m.addNode(name, "rendered-worker-1", map[string]string{role("worker"): ""})
			p.Rollout.Downloads = append(p.Rollout.Downloads, api.NodeDownload{Name: name, Since: v1.Time{Time: m.now}, Failure: "unauthorized"})
		}
	})
	f, _ := m.access("").Fleet(t.Context())
	d := rollout.Decide(f)
	if p := d.Pools[0]; len(p.Asked) > 0 || !strings.Contains(p.Rollout.Waiting, "ma: unauthorized; mb: unauthorized; mc: unauthorized and 17 more") {
		t.Errorf("asks %q; %s", namesOf(p.Asked), p.Rollout.Waiting)
	}
	if !d.Next.Equal(m.now.Add(time.Hour)) {
		t.Errorf("looks again at %s", d.Next)
	}
}

// TestDeniedDownload: a node that nobody may change keeps its place for a download, or its slot, also if its PoolRollout is to
// be deleted, and is named with the reason.
func TestDeniedDownload(t *testing.T) {
	m := small()
	m.changeRollout("worker", func(p *rollout.Pool) {
		p.Rollout.Target, p.Rollout.Downloads, p.Finalizers = "rendered-worker-2", []api.NodeDownload{{Name: "n0", Since: v1.NewTime(m.now)}}, []string{rollout.Finalizer}
	})
	m.deleteRollout("worker")
	f, _ := m.access("").Fleet(t.Context())
	f.Nodes[0].Refused = "the webhook says no"
	if r := rollout.Decide(f).Pools[0].Rollout; len(r.Downloads) != 1 || !strings.Contains(r.Waiting, "waits for the download of n0, which cannot be changed: the webhook says no") {
		t.Errorf("%+v", r)
	}
	f.Pools[0].Rollout.Taken, f.Pools[0].Rollout.Downloads = []string{"n0"}, nil
	if r := rollout.Decide(f).Pools[0].Rollout; len(r.Taken) != 1 || !strings.Contains(r.Waiting, "n0, which cannot be changed: the webhook says no") {
		t.Errorf("%+v", r)
	}
}
