package render

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"machine-pivot/internal/cluster/api"
)

// The results of an attempt to render, for metrics.
const (
	resultRendered    = "rendered"
	resultRefused     = "refused"     // the MachineConfigs have problems
	resultUnavailable = "unavailable" // remote content, or the API server
)

// measured are the metrics.
type measured struct {
	seconds  *prometheus.HistogramVec // by result
	degraded *prometheus.GaugeVec     // by pool
}

func newMeasured(registry prometheus.Registerer) (*measured, error) {
	m := &measured{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pivot_fleet_render_seconds",
			Help:    "How long it took to render the MachineConfig of a pool.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 8), // to 164 s
		}, []string{"result"}),
		degraded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pivot_render_degraded", Help: "1 if the MachineConfigs of the pool cannot be merged.",
		}, []string{"pool"}),
	}
	for _, result := range []string{resultRendered, resultRefused, resultUnavailable} {
		m.seconds.WithLabelValues(result)
	}
	return m, errors.Join(registry.Register(m.seconds), registry.Register(m.degraded))
}

func (m *measured) attempt(result string, took time.Duration) {
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
}

// pool shows whether a pool's MachineConfigs cannot be merged.
func (m *measured) pool(name string, v verdict) {
	degraded := 0.0
	if v.status == api.True {
		degraded = 1
	}
	m.degraded.WithLabelValues(name).Set(degraded)
}

// gone ends the metrics of a pool that is deleted.
func (m *measured) gone(name string) { m.degraded.DeleteLabelValues(name) }
