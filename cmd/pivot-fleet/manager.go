package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/fault"
)

// managerFlags are the flags of each command: how to reach the API server, and where to answer those who look
// after the program.
type managerFlags struct {
	api             connect.Flags
	health, metrics string
}

func (f *managerFlags) add(cmd *cobra.Command) {
	f.api.Add(cmd, "those of the pod")
	cmd.Flags().StringVar(&f.health, "listen-health", ":8798", "`ADDRESS` of /healthz and /readyz")
	cmd.Flags().StringVar(&f.metrics, "listen-metrics", "127.0.0.1:8799", "`ADDRESS` of /metrics")
}

// manager returns a manager with the options, which knows the objects of a fleet and answers /healthz.
func (f *managerFlags) manager(cmd *cobra.Command, build cli.Build, config *rest.Config, o manager.Options) (manager.Manager, error) {
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, err
	}
	api.AddTo(known)
	ctrl.SetLogger(connect.LogLibraries(f.api.Log(cmd)))
	if err := metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pivot_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"program": "pivot-fleet", "version": build.Version, "commit": build.Commit}}, func() float64 { return 1 })); err != nil {
		return nil, err
	}
	o.Scheme, o.HealthProbeBindAddress, o.Metrics = known, "0", server.Options{BindAddress: "0"} // see watched
	m, err := ctrl.NewManager(config, o)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "cannot use the API server: %w", err).WithHint("see --kubeconfig")
	}
	return f.watched(cmd.Context(), m)
}
