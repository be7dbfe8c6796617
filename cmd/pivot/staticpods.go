package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pods"
	"machine-pivot/internal/sepolicy"
)

func staticPodsCommand() *cobra.Command {
	var root, from, to string
	cmd := &cobra.Command{
		Use:   "static-pods",
		Short: "Write static pods for a kubelet that does not know CPU partitioning",
		Long: "Write static pods for a kubelet that does not know CPU partitioning: pods that choose a workload type of\n" +
			"/etc/kubernetes/openshift-workload-pinning have the CPU shares of their containers in annotations for\n" +
			"CRI-O instead of CPU requests; all others are copied. pivot-static-pods.service does this before kubelet\n" +
			"starts, and pivot-static-pods.path when something has changed. Pods that were written before and are no\n" +
			"longer in the directory are removed; files that something else has written are not touched. The exit\n" +
			"status is not 0 if a pod could not be written; all others are.",
		Example: "  pivot static-pods",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckRoot(root); err != nil {
				return err
			}
			return writeStaticPods(cmd, root, from, to)
		},
	}
	cli.AddRoot(cmd, &root)
	cmd.Flags().StringVar(&from, "from", pods.SourceDir, "read the pods from `DIR`")
	cmd.Flags().StringVar(&to, "to", pods.ManifestDir, "write them into `DIR`, kubelet's staticPodPath")
	cli.Directories(cmd, "from", "to")
	return cmd
}

func writeStaticPods(cmd *cobra.Command, root, from, to string) error {
	h := host.New(root)
	unlock, err := h.LockStaticPods()
	if err != nil {
		return err
	}
	defer unlock()
	labels, err := sepolicy.RunningLabels(root)
	if err != nil {
		return err
	}
	log := newLog(cmd.ErrOrStderr())
	w := pods.StaticPods{Root: root, From: from, To: to, Disk: hostfiles.OS{}, Labels: labels, Note: noteTo(log)}
	w.Types, w.Unknown = h.WorkloadTypes()
	errs := w.Update()
	if len(errs) == 0 {
		return nil
	}
	for _, err := range errs[1:] {
		log.Error(fault.WithRemedy(err))
	}
	return errs[0]
}
