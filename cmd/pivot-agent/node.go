package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
)

// nodeFlags are the flags of the node agent.
type nodeFlags struct {
	api           connect.Flags
	name          string
	host, program string
	listen        string
	metrics       metricsFlags
	drain         string
	pods          kube.DrainPolicy
	handBack      bool
	policy        node.Policy
}

// Who drains the node. It is the agent unless a controller does: elsewhere than in a cluster of OpenShift
// nobody answers the annotations, and the rights for it are those of deploy/base.
const (
	drainSelf       = "self"
	drainController = "controller"
)

// drainPass is how long the agent drains until it looks again at what the cluster wants.
const drainPass = 2 * time.Minute

func nodeCommand(build cli.Build) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the agent of this machine's node",
		Long: "Run the agent of this machine's node. It gives the machine the MachineConfig that the node's\n" +
			"annotation machineconfiguration.openshift.io/desiredConfig names, by pivot on the host, and reports its\n" +
			"progress in annotations, events and objects. A node without that annotation, and a host that is not\n" +
			"booted from an ostree deployment, are left alone. It also advertises the resources of\n" +
			"CPU partitioning on the node, for the workload types that pivot finds on the host.",
		Example: "  pivot-agent node --drain=controller\n  pivot-agent node --host /host",
		Args:    cli.Usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, build) },
	}
	f.api.Add(cmd, "kubelet's")
	flags := cmd.Flags()
	flags.StringVar(&f.name, "node-name", "", "`NAME` of the node (default: the environment variable NODE_NAME, or else that of kubelet's credentials, or else the host's name)")
	flags.StringVar(&f.host, "host", "/", "`DIR` below which the host's /run is mounted")
	cli.Directories(cmd, "host")
	flags.StringVar(&f.program, "pivot", "/usr/bin/pivot", "`PATH` of pivot on the host")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8797", "`ADDRESS` of /healthz, /readyz and /metrics")
	f.metrics.add(cmd)
	f.drain = drainSelf
	cli.OneOf{Value: &f.drain, Allowed: []string{drainSelf, drainController}}.Add(cmd, "drain", "who cordons, drains and uncordons the node: the agent, or a controller by the annotations")
	f.pods = kube.DrainPolicy{EmptyDir: kube.Evict, Unmanaged: kube.Evict, Finished: kube.Evict} // as the machine-config operator does
	cli.OneOf{Value: &f.pods.EmptyDir, Allowed: []string{kube.Evict, kube.Stop}}.Add(cmd, "drain-emptydir", "pods with data in an emptyDir, which is lost: evict them, or stop the drain")
	cli.OneOf{Value: &f.pods.Unmanaged, Allowed: []string{kube.Evict, kube.Stop}}.Add(cmd, "drain-unmanaged", "pods without a controller that creates them again: evict them, or stop the drain")
	cli.OneOf{Value: &f.pods.Finished, Allowed: []string{kube.Evict, kube.Leave}}.Add(cmd, "drain-finished", "pods that have ended: evict them, or leave them")
	flags.BoolVar(&f.policy.SingleNode, "single-node", false, "the node is the only one of its cluster, and is not drained")
	flags.DurationVar(&f.policy.DrainLimit, "drain-limit", time.Hour, "`DURATION` that a drain may take")
	flags.BoolVar(&f.policy.KeepDraining, "keep-draining", false, "continue a drain that takes longer than --drain-limit, instead of giving the node back")
	f.policy.Unsupported = "stop"
	cli.OneOf{Value: &f.policy.Unsupported, Allowed: []string{"stop", "warn", node.UnsupportedReplace}}.
		Add(cmd, "unsupported", "how to treat what only an installation can change: stop, warn and apply the rest, or ask for another machine by an annotation")
	flags.DurationVar(&f.policy.Try, "try", 0, "boot each new system on trial for this `DURATION`: the old one is booted again if it does not prove itself")
	flags.DurationVar(&f.policy.ProveEvery, "prove-every", 10*time.Minute, "compare the machine with its MachineConfig every `DURATION`")
	flags.BoolVar(&f.handBack, "hand-back", false, "give the node back to the machine-config-daemon, say what that will find, and end")
	return cmd
}

func (f *nodeFlags) run(cmd *cobra.Command, build cli.Build) error {
	if err := f.check(); err != nil {
		return err
	}
	log := f.api.Log(cmd)
	if err := f.api.UseKubelet(cmd.Context(), "/", !f.handBack, log); cmd.Context().Err() != nil {
		return nil // as below
	} else if err != nil {
		return err
	}
	client, err := f.client(cmd.Context(), build)
	if err != nil {
		return err
	}
	host := &hostpivot.Systemd{Root: f.host, Program: f.program, Version: build.Version, Now: time.Now}
	if err := host.Lock(); err != nil {
		return err
	}
	connect.LogLibraries(log)
	cluster := &kube.Cluster{Name: f.name, API: client, Now: time.Now}
	agent := &node.Agent{
		Cluster: cluster, Runner: host, Policy: f.policy, Version: build.Version, Now: time.Now,
		Log: log, Metrics: &node.Metrics{Version: build.Version, Commit: build.Commit}, Events: &node.Events{Cluster: cluster, Now: time.Now},
		Drainer: &kube.Drainer{Cluster: cluster, Self: self(), Policy: f.pods, Limit: drainPass, Log: log},
	}
	if f.handBack {
		return handBack(cmd.Context(), agent, cmd.OutOrStdout())
	}
	ctx, end := f.endWithCredentials(cmd.Context(), log)
	defer end()
	return f.work(ctx, agent, host, cluster)
}

// work is what the agent does until ctx ends.
func (f *nodeFlags) work(ctx context.Context, agent *node.Agent, host *hostpivot.Systemd, cluster *kube.Cluster) error {
	if err := serve(ctx, f.listen, agent); err != nil {
		return err
	}
	measured, err := f.metrics.serve(ctx, agent.Metrics, agent.Log)
	if err != nil {
		return err
	}
	if measured != nil {
		defer measured.Close()
	}
	keeper := &node.Keeper{Cluster: cluster, Now: time.Now, Log: agent.Log, Metrics: agent.Metrics, Events: agent.Events, Runner: &hostpivot.Systemd{
		Root: f.host, Program: f.program, Version: agent.Version, Queries: workloadsUnit, Now: time.Now,
	}}
	nodes := make(chan node.Resources, 1)
	cluster.Capacity = func(n node.Resources) { newest(nodes, n) }
	go keeper.Run(ctx, nodes)
	wake := make(chan struct{}, 1)
	awake := func() {
		select {
		case wake <- struct{}{}:
		default: // it is awake
		}
	}
	go cluster.Watch(ctx, awake)
	for _, notify := range []func(context.Context, func()) error{host.NotifyDrift, host.NotifyRun} {
		go func() {
			if err := notify(ctx, awake); err != nil { // what the host does is looked at in intervals, too
				agent.Log.WithError(err).Warn("drift, or the end of a run, is noticed later")
			}
		}()
	}
	ended := make(chan struct{})
	go func() { agent.Run(ctx, wake); close(ended) }()
	if stuck(ended, agent.Metrics.Alive, time.Minute) {
		return fault.New(fault.Unavailable, "the agent has made no step for minutes").WithHint("start the agent again; systemd and kubelet do so by themselves")
	}
	agent.Log.Info("the agent stops; a run of pivot continues")
	if err := context.Cause(ctx); errors.Is(err, errOthers) {
		return fault.New(fault.Unavailable, "%w", err).WithHint("start the agent again; systemd does so by itself")
	}
	return nil // to be stopped is how it ends
}

// stuck waits until the agent has ended, or has not been alive at three looks in a row. Nobody else looks: who asks over the
// network gets no answer while strangers have all connections, and would kill an agent that works.
func stuck(ended <-chan struct{}, alive func(time.Time) bool, every time.Duration) bool {
	looks := time.NewTicker(every)
	defer looks.Stop()
	for dead := 0; dead < 3; {
		select {
		case <-ended:
			return false
		case now := <-looks.C:
			if dead++; alive(now) {
				dead = 0
			}
		}
	}
	return true
}

var errOthers = errors.New("the file with the credentials is another one")

// endWithCredentials returns a context that ends when the agent's credentials are no longer those in their file.
func (f *nodeFlags) endWithCredentials(ctx context.Context, log *logrus.Logger) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		changed, err := f.api.Changed(ctx)
		if err != nil {
			log.WithError(err).Warn("other credentials are not noticed")
		}
		if changed {
			cancel(errOthers)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// workloadsUnit asks pivot on the host for its workload types, beside the questions of the node's agent.
const workloadsUnit = "pivot-agent-workloads.service"

// newest puts a value into a channel of one, in place of an older one. Nobody else may do so.
func newest[T any](c chan T, value T) {
	select {
	case <-c:
	default:
	}
	c <- value
}

// self returns the pod that the agent is, as the fields of its own pod that deploy/ gives to it say; none
// on a host.
func self() types.NamespacedName {
	return types.NamespacedName{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}
}

// check completes and checks the flags.
func (f *nodeFlags) check() error {
	f.policy.ByController = f.drain == drainController
	if f.policy.DrainLimit <= 0 || f.policy.ProveEvery < time.Minute || f.policy.Try < 0 {
		return fault.New(fault.Usage, "--drain-limit and --try must be positive, and --prove-every at least 1m")
	}
	return nil
}

// client returns a client of the API server, and completes the name of the node.
func (f *nodeFlags) client(ctx context.Context, build cli.Build) (rest.Interface, error) {
	config, err := f.api.Config(ctx, "pivot-agent/"+build.Version)
	if err != nil {
		return nil, err
	}
	if err := f.nameNode(config); err != nil {
		return nil, err
	}
	return kube.New(config)
}

// nameNode completes the name of the node. Kubelet calls its node by the host's name in lower case, unless it is told
// or a cloud says another one; its credentials always name the node.
func (f *nodeFlags) nameNode(config *rest.Config) error {
	if f.name = cmp.Or(f.name, os.Getenv("NODE_NAME"), connect.NodeOf(config)); f.name != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fault.New(fault.Usage, "cannot tell the node's name: %w", err).WithHint("name it with --node-name")
	}
	f.name = strings.ToLower(name)
	return nil
}
