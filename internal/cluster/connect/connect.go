// Package connect has what each program of a cluster needs to begin: flags that say how to reach the API
// server and what to log.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
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
func (f *Flags) Config(ctx context.Context, agent string) (config *rest.Config, err error) {
	if f.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else if f.read, err = credentials(f.kubeconfig).Read(ctx); err == nil {
		config, err = parse(f.read, f.kubeconfig, "")
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot find the API server: %w", err).
			WithHint("outside of a pod, name credentials with --kubeconfig")
	}
	config.UserAgent = agent
	config.QPS = -1 // the API server limits, and is fair; a limit here would let 300 nodes wait for a minute
	return config, nil
}

func credentials(path string) input.File { return input.File{What: "the credentials", Path: path} }

// Read returns how to reach the API server by a context of a kubeconfig file; "" is its current one. The file is read
// once, with a limit, so a pipe may have it.
func Read(ctx context.Context, path, named string) (*rest.Config, error) {
	text, err := credentials(path).Read(ctx)
	if err != nil {
		return nil, err
	}
	return parse(text, path, named)
}

// parse is Read of a text that the file with a path had.
func parse(text []byte, path, named string) (*rest.Config, error) {
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("cannot parse %s: %w", path, err)
	}
	for _, c := range file.Clusters {
		c.LocationOfOrigin = path
	}
	for _, u := range file.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, err
	}
	if err := CheckNamed(file, named); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{CurrentContext: named}).ClientConfig()
}

// CheckNamed returns an error if a context of a kubeconfig file, "" for its current one, names a file that has no end or no
// bounded size. client-go reads them whole, and more than once.
func CheckNamed(file *api.Config, named string) error {
	at := file.Contexts[cmp.Or(named, file.CurrentContext)]
	if at == nil {
		return nil // client-go says what is wrong
	}
	var paths []string
	if c := file.Clusters[at.Cluster]; c != nil {
		paths = append(paths, c.CertificateAuthority)
	}
	if u := file.AuthInfos[at.AuthInfo]; u != nil {
		paths = append(paths, u.ClientCertificate, u.ClientKey, u.TokenFile)
	}
	for _, path := range paths {
		if err := (input.File{Path: path}).Check(); path != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot read %s, which the credentials name: %w", path, err)
		}
	}
	return nil
}

// EachReplica is a manager's Runnable that also runs where the Lease is not held.
type EachReplica func(context.Context) error

// Start implements manager.Runnable.
func (run EachReplica) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (EachReplica) NeedLeaderElection() bool { return false }

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
