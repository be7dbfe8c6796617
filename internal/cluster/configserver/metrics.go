package configserver

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// newRequests returns the counter of answered requests. Its labels have as many values as there are pools and
// statuses: a request for no pool that is served has an empty one.
func newRequests() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pivot_fleet_ignition_requests_total",
		Help: "Answered requests for an Ignition config, by pool and HTTP status.",
	}, []string{"pool", "code"})
}

func count(requests *prometheus.CounterVec, pool string, status int) {
	requests.WithLabelValues(pool, strconv.Itoa(status)).Inc()
}
