package render

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The results of an attempt to render, for metrics.
const (
	resultRendered    = "rendered"
	resultRefused     = "refused"     // the MachineConfigs have problems
	resultUnavailable = "unavailable" // remote content, or the API server
)

// measured are the metrics. Their only label is the result.
type measured struct{ seconds *prometheus.HistogramVec }

func newMeasured(registry prometheus.Registerer) (*measured, error) {
	m := &measured{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "pivot_fleet_render_seconds",
		Help:    "How long it took to render the MachineConfig of a pool.",
		Buckets: prometheus.ExponentialBuckets(0.01, 4, 8), // to 164 s
	}, []string{"result"})}
	for _, result := range []string{resultRendered, resultRefused, resultUnavailable} {
		m.seconds.WithLabelValues(result)
	}
	err := registry.Register(m.seconds)
	if existing, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); twice { // of another manager in this process
		m.seconds, err = existing.ExistingCollector.(*prometheus.HistogramVec), nil
	}
	return m, err
}

func (m *measured) attempt(result string, took time.Duration) {
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
}
