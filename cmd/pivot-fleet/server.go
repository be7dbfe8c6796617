package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/configserver"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
)

// serverFlags are the flags of the server of Ignition configs.
type serverFlags struct {
	managerFlags
	listen                     string
	cert, key, clientCA        string
	namespace, policy, program string
	connections, perAddress    int
}

func serverCommand(build cli.Build) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server --tls-cert FILE --tls-key FILE",
		Short: "Serve the Ignition configs of the pools to new machines",
		Long: "Serve the Ignition configs of the pools to new machines at /config/POOL, each in the version that the\n" +
			"machine accepts. A client needs a certificate, or a token of the pool. A Secret has the digests of the tokens.",
		Example: "  pivot-fleet server --tls-cert /run/tls/tls.crt --tls-key /run/tls/tls.key",
		Args:    cli.Usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, build) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", ":22623", "`ADDRESS` of the configs")
	flags.StringVar(&f.cert, "tls-cert", "", "PEM `FILE` with the certificate, followed by its chain; it is read again when it changes")
	flags.StringVar(&f.key, "tls-key", "", "PEM `FILE` with the certificate's private key")
	flags.StringVar(&f.clientCA, "client-ca", "", "PEM `FILE` with the authorities of clients' certificates (default: certificates are not accepted)")
	flags.StringVar(&f.namespace, "namespace", "pivot-fleet-server", "`NAMESPACE` of the tokens' Secrets")
	flags.StringVar(&f.policy, "karg-policy", "", "`FILE` with rules for kernel arguments in addition to the built-in ones; machines get it, too")
	flags.StringVar(&f.program, "embed-pivot", "", "static pivot binary `FILE` to install, with its units, for boot images without pivot")
	flags.IntVar(&f.connections, "max-connections", 8192, "maximum `NUMBER` of open connections; more wait")
	flags.IntVar(&f.perAddress, "max-connections-per-address", 2048, "maximum `NUMBER` of open connections per client address; more are reset")
	return cmd
}

func (f *serverFlags) run(cmd *cobra.Command, build cli.Build) error {
	if f.cert == "" || f.key == "" {
		return fault.New(fault.Usage, "--tls-cert and --tls-key are missing: tokens and configs are secret")
	}
	if f.connections <= 0 || f.perAddress <= 0 {
		return fault.New(fault.Usage, "--max-connections and --max-connections-per-address must be more than nothing")
	}
	config, err := f.api.Config(cmd.Context(), "pivot-fleet/"+build.Version)
	if err != nil {
		return err
	}
	options := configserver.Options{Namespace: f.namespace, MaxConnections: f.connections, MaxPerAddress: f.perAddress, Metrics: metrics.Registry}
	if options.KargPolicy, err = optional(cmd.Context(), f.policy, "the policy for kernel arguments", input.MaxText); err != nil {
		return err
	}
	if options.Program, err = optional(cmd.Context(), f.program, "the program to embed,", input.MaxProgram); err != nil {
		return err
	}
	for _, path := range []string{f.cert, f.key} {
		if err := (input.File{Path: path}).Check(); err != nil {
			return fault.New(fault.BadInput, "cannot use the certificate: cannot read %s: %w", path, err)
		}
	}
	certificate, err := certwatcher.New(f.cert, f.key)
	if err != nil {
		return fault.New(fault.BadInput, "cannot use the certificate: %w", err)
	}
	if options.TLS, err = f.tls(cmd.Context(), certificate); err != nil {
		return err
	}
	m, err := f.manager(cmd, build, config, manager.Options{Cache: configserver.Cache(f.namespace)})
	if err != nil {
		return err
	}
	if options.Listener, err = new(net.ListenConfig).Listen(cmd.Context(), "tcp", f.listen); err != nil {
		return fault.New(fault.Unavailable, "cannot listen: %w", err).WithHint("choose another address with --listen")
	}
	if err := m.Add(certificate); err != nil {
		return err
	}
	if err := configserver.Setup(m, options); err != nil {
		return err
	}
	return m.Start(cmd.Context())
}

// tls returns the settings of TLS, with the certificate as it is at the time of each connection.
func (f *serverFlags) tls(ctx context.Context, certificate *certwatcher.CertWatcher) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate}
	authorities, err := optional(ctx, f.clientCA, "the authorities of clients", input.MaxText)
	if err != nil || authorities == nil {
		return settings, err
	}
	settings.ClientCAs, settings.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !settings.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fault.New(fault.BadInput, "cannot use --client-ca: %s has no certificate in PEM", f.clientCA).WithHint("begin it with -----BEGIN CERTIFICATE-----; openssl x509 -inform der -in FILE prints one so")
	}
	return settings, nil
}

// optional reads a file that a flag names; nil if it names none. what says what it is.
func optional(ctx context.Context, path, what string, most int) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	return input.File{What: what, Path: path, Max: most}.Read(ctx)
}
