// Package connect has what each program of a cluster needs to begin: flags that say how to reach the API
// server and what to log.
package connect

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"machine-pivot/internal/fault"
)

// Flags say how to reach the API server, and what to log.
type Flags struct {
	kubeconfig string
	verbose    bool
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the API server and credentials, such as kubelet's (default: those of the pod)")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log each step")
}

// Config returns how to reach the API server. agent is the program with its version, as the API server logs
// it: NAME/VERSION.
func (f *Flags) Config(agent string) (config *rest.Config, err error) {
	if f.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot tell how to reach the API server: %w", err).
			WithHint("outside of a pod, name credentials with --kubeconfig; a node has kubelet's")
	}
	config.UserAgent = agent
	return config, nil
}

// Log returns a log of JSON lines on the command's standard error.
func (f *Flags) Log(cmd *cobra.Command) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	log.SetFormatter(&logrus.JSONFormatter{})
	if f.verbose {
		log.SetLevel(logrus.DebugLevel)
	}
	return log
}
