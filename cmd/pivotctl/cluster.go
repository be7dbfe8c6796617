package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/cluster/view"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
)

func clusterCommand(build cli.Build) *cobra.Command {
	return cli.Group("cluster", "See what a fleet does, and what a change would do to it",
		clusterStatusCommand(build), clusterPlanCommand(build), clusterGatherCommand(build))
}

// clusterFlags say how to reach the API server, as kubectl does.
type clusterFlags struct {
	kubeconfig, context string
	program             string // with its version
}

func (f *clusterFlags) add(cmd *cobra.Command, build cli.Build) {
	f.program = "pivotctl/" + build.Version
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the API server and credentials (default: as kubectl: $KUBECONFIG, ~/.kube/config, or those of the pod)")
	cmd.Flags().StringVar(&f.context, "context", "", "`NAME` of the context in --kubeconfig (default: its current one)")
}

func (f *clusterFlags) client(ctx context.Context) (*view.Client, error) {
	config, err := f.config(ctx)
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot find the API server: %w", err).WithHint("name a file with --kubeconfig, and a context with --context")
	}
	config.UserAgent = f.program
	return view.NewClient(config)
}

// config returns how to reach the API server, as kubectl finds it.
func (f *clusterFlags) config(ctx context.Context) (*rest.Config, error) {
	if f.kubeconfig != "" {
		return connect.Read(ctx, f.kubeconfig, f.context)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	for _, path := range rules.GetLoadingPrecedence() {
		if err := (input.File{Path: path}).Check(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
	}
	if file, err := rules.Load(); err == nil { // otherwise the same error comes again
		if err := connect.CheckNamed(file, f.context); err != nil {
			return nil, err
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
}

// watchEvery is how often --watch reads the cluster again.
const watchEvery = 5 * time.Second

func clusterStatusCommand(build cli.Build) *cobra.Command {
	var f clusterFlags
	var out cli.Output
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [POOL]",
		Short: "Show who is where in a rollout, why it waits, and how long it will take",
		Long: "Show the pools of a fleet and their nodes: the MachineConfig that each has and is given, the agent's step,\n" +
			"why a node or a pool waits or has failed, and the expected time, measured on the nodes that have\n" +
			"finished. What the cluster does not have, and what the reader may not read, is named; the rest is shown.",
		Example: "  pivotctl cluster status\n  pivotctl cluster status worker --watch\n  pivotctl cluster status -o json",
		Args:    cli.Usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := f.client(cmd.Context())
			if err != nil {
				return err
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			show := func(again bool) error {
				s, err := observed(cmd, client, name)
				if err != nil {
					return err
				}
				width := cli.Width(os.Stdout)
				if again && width > 0 && out.IsText() {
					if _, err := io.WriteString(cmd.OutOrStdout(), "\x1b[H\x1b[2J"); err != nil { // home, erase
						return err
					}
				}
				return out.Write(cmd.OutOrStdout(), s, func(w io.Writer) { s.WriteText(w, width) })
			}
			if !watch {
				return show(false)
			}
			return watched(cmd, show)
		},
	}
	f.add(cmd, build)
	out.Add(cmd, api.Fleet)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every 5 seconds, until ^C")
	return cmd
}

// observed returns the status of a pool, or of all pools if name is empty.
func observed(cmd *cobra.Command, client *view.Client, name string) (view.Status, error) {
	facts, err := view.Observe(cmd.Context(), client, time.Now())
	if err != nil {
		return view.Status{}, err
	}
	s, ok := view.Judge(facts, name)
	if !ok {
		return s, fault.New(fault.Usage, "cannot find the pool %q", name).WithHint("pivotctl cluster status shows all pools")
	}
	return s, nil
}

// watched shows something until the command is stopped. An API server that does not answer for a while, as that
// of a node that reboots, does not end it once it has answered.
func watched(cmd *cobra.Command, show func(again bool) error) error {
	ticks := time.NewTicker(watchEvery)
	defer ticks.Stop()
	for seen := false; ; {
		err := show(true)
		switch {
		case err == nil:
			seen = true
		case !seen || !fault.KindOf(err).Transient():
			return err
		case cmd.Context().Err() == nil:
			cmd.PrintErrln("pivotctl: warning:", err, "(it is tried again)")
		}
		select {
		case <-ticks.C:
		case <-cmd.Context().Done():
			return errors.New("stopped")
		}
	}
}
