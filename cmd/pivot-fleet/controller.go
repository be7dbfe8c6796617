package main

import (
	"maps"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/admission"
	"machine-pivot/internal/cluster/follow"
	"machine-pivot/internal/cluster/render"
	"machine-pivot/internal/cluster/rollout"
)

// controllerFlags are the flags of the fleet's controllers.
type controllerFlags struct {
	managerFlags
	namespace string // of the Lease
	admission admission.Options
	render    render.Options
}

// lease is the name of the Lease. Its holder is the one controller that acts.
const lease = "pivot-fleet-controller"

func controllerCommand(build cli.Build) *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers of the fleet",
		Long: "Run the controllers of the fleet. Of several that run, the one that holds the Lease " + lease + "\n" +
			"acts, and the others wait.",
		Example: "  pivot-fleet controller --kubeconfig admin.kubeconfig",
		Args:    cli.Usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, build) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.namespace, "namespace", "pivot-fleet", "`NAMESPACE` of the Lease, and of what the controllers keep")
	flags.StringVar(&f.admission.Listen, "listen-webhooks", ":9443", "`ADDRESS` of the admission webhooks; empty for none")
	flags.StringVar(&f.admission.Certificates, "webhook-certificates", "", "`DIRECTORY` with tls.crt and tls.key of the webhooks (default: made and renewed by the controller)")
	flags.StringArrayVar(&f.admission.Names, "webhook-name", nil, "`NAME` or IP address by which API servers call the webhooks, beside the Service's; may be repeated")
	flags.StringArrayVar(&f.admission.Platform, "platform-user", nil, "`USER` that may write the platform's own MachineConfigs, beside the controller; may be repeated")
	flags.StringVar(&f.render.OSImage, "os-image-url", "", "OS `IMAGE` to use if the MachineConfigs name none")
	flags.StringVar(&f.render.ExtensionsImage, "extensions-image", "", "`IMAGE` with the packages of extensions, to use if the MachineConfigs name none")
	flags.StringVar(&f.render.Release, "release-image", "", "release `IMAGE` of the cluster, for an annotation of rendered MachineConfigs")
	flags.IntVar(&f.render.Keep, "keep-rendered", 5, "keep `NUMBER` rendered MachineConfigs that nothing needs, for each pool")
	return cmd
}

// A leader that cannot renew its Lease for renewLimit ends. Another one takes over leaseLength after the last
// renewal.
const (
	leaseLength = 30 * time.Second
	renewLimit  = 20 * time.Second
	renewEvery  = 5 * time.Second
)

func (f *controllerFlags) run(cmd *cobra.Command, build cli.Build) error {
	config, err := f.api.Config(cmd.Context(), "pivot-fleet/"+build.Version)
	if err != nil {
		return err
	}
	length, limit, every := leaseLength, renewLimit, renewEvery
	m, err := f.manager(cmd, build, config, manager.Options{
		LeaderElection:   true,
		LeaderElectionID: lease, LeaderElectionNamespace: f.namespace,
		LeaseDuration: &length, RenewDeadline: &limit, RetryPeriod: &every,
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: caches()},
	})
	if err != nil {
		return err
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	f.admission.Namespace = f.namespace
	if err := admission.Setup(cmd.Context(), m, f.admission); err != nil {
		return err
	}
	f.render.Version, f.render.Grace, f.render.Metrics = build.Version, time.Hour, metrics.Registry
	if err := render.Setup(m, f.render); err != nil {
		return err
	}
	if err := follow.Setup(m, follow.Options{Namespace: f.namespace, Now: time.Now}); err != nil {
		return err
	}
	if err := rollout.Setup(m, rollout.Options{Self: os.Getenv("NODE_NAME"), Metrics: metrics.Registry}); err != nil {
		return err
	}
	return m.Start(cmd.Context())
}

// caches returns what is kept of each kind: no more than the parts use, so that thousands of nodes and large
// MachineConfigs fit.
func caches() map[client.Object]cache.ByObject {
	kept := rollout.Caches()
	maps.Copy(kept, admission.Caches())
	return kept
}
