//go:build full

package main

import (
	"github.com/spf13/cobra"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// fullComponents returns the components with which workloads are created, scheduled and replaced.
func fullComponents() map[string]component {
	return map[string]component{
		"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	}
}
