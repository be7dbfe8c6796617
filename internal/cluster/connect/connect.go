// Package connect has what each program of a cluster needs to begin: flags that say how to reach the API
// server and what to log.
package connect

import (
	"os"

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

	read []byte // what Config has read of the file
}

// Add adds the flags to a command. byDefault says which credentials it uses without a flag.
func (f *Flags) Add(cmd *cobra.Command, byDefault string) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the API server and credentials (default: "+byDefault+")")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log each step")
}

// Config returns how to reach the API server. agent is the program with its version, as the API server logs
// it: NAME/VERSION.
func (f *Flags) Config(agent string) (config *rest.Config, err error) {
	if f.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		f.read, _ = os.ReadFile(f.kubeconfig) // the next line says what is wrong with it
		config, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot tell how to reach the API server: %w", err).
			WithHint("outside of a pod, name credentials with --kubeconfig")
	}
	config.UserAgent = agent
	config.QPS = -1 // the API server limits, and is fair; a limit here would let 300 nodes wait for a minute
	return config, nil
}

// Log returns a log of JSON lines on the command's standard error. A line with an error also has what to do about it.
func (f *Flags) Log(cmd *cobra.Command) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	log.SetFormatter(&logrus.JSONFormatter{})
	log.AddHook(hints{})
	if f.verbose {
		log.SetLevel(logrus.DebugLevel)
	}
	return log
}

// hints adds the hint of an error to the line of a log that has the error.
type hints struct{}

// Levels implements logrus.Hook.
func (hints) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (hints) Fire(e *logrus.Entry) error {
	if err, ok := e.Data[logrus.ErrorKey].(error); ok && fault.HintOf(err) != "" {
		e.Data["hint"] = fault.HintOf(err)
	}
	return nil
}
