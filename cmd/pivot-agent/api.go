package main

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"machine-pivot/internal/fault"
)

// apiFlags are the flags of each command: how to reach the API server, and what to log.
type apiFlags struct {
	kubeconfig string
	verbose    bool
}

func (f *apiFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the API server and credentials, such as kubelet's (default: those of the pod)")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log each step")
}

// config returns how to reach the API server.
func (f *apiFlags) config(version string) (config *rest.Config, err error) {
	if f.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot tell how to reach the API server: %w", err).
			WithHint("outside of a pod, name kubelet's credentials with --kubeconfig")
	}
	config.UserAgent = "pivot-agent/" + version
	return config, nil
}

func (f *apiFlags) log(cmd *cobra.Command) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	log.SetFormatter(&logrus.JSONFormatter{})
	if f.verbose {
		log.SetLevel(logrus.DebugLevel)
	}
	return log
}
