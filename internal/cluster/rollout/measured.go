package rollout

import (
	"github.com/prometheus/client_golang/prometheus"
)

// measured are the metrics of pools. Their only label is the pool.
type measured struct{ nodes, updated, unavailable, degraded, paused, held *prometheus.GaugeVec }

func newMeasured(registry prometheus.Registerer) (*measured, error) {
	m := &measured{}
	for _, g := range []struct {
		gauge      **prometheus.GaugeVec
		name, help string
	}{
		{&m.nodes, "pivot_pool_nodes", "Nodes of the pool."},
		{&m.updated, "pivot_pool_updated_nodes", "Nodes that have the configuration of the pool."},
		{&m.unavailable, "pivot_pool_unavailable_nodes", "Nodes that do not serve, or are being changed."},
		{&m.degraded, "pivot_pool_degraded_nodes", "Nodes on which a change has failed."},
		{&m.paused, "pivot_pool_paused", "1 if the rollout is paused."},
		{&m.held, "pivot_pool_held", "1 if nodes may not begin because the pool is paused, or waits for its window, other pools or its soak time."},
	} {
		*g.gauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: g.name, Help: g.help}, []string{"pool"})
		if err := registry.Register(*g.gauge); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// pools shows the pools of a fleet as they were decided about. A pool that is deleted has no metrics any more.
func (m *measured) pools(f Fleet, d Decision) {
	for _, g := range []*prometheus.GaugeVec{m.nodes, m.updated, m.unavailable, m.degraded, m.paused, m.held} {
		g.Reset()
	}
	for i := range d.Pools {
		if f.Pools[i].Orphan {
			continue
		}
		m.pool(f.Pools[i].Name, f.Pools[i].Paused, d.Pools[i])
	}
}

func (m *measured) pool(name string, paused bool, d PoolDecision) {
	s := d.Status
	m.nodes.WithLabelValues(name).Set(float64(s.MachineCount))
	m.updated.WithLabelValues(name).Set(float64(s.UpdatedMachineCount))
	m.unavailable.WithLabelValues(name).Set(float64(s.UnavailableMachineCount))
	m.degraded.WithLabelValues(name).Set(float64(s.DegradedMachineCount))
	m.paused.WithLabelValues(name).Set(number(paused))
	m.held.WithLabelValues(name).Set(number(d.Held))
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
