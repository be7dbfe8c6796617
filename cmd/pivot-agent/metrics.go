package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/input"
)

// metricsFlags say where the metrics are served to other machines, and to whom. It is an address of its own:
// kubelet's probes have no certificate, and stay on the loopback interface.
type metricsFlags struct{ listen, certificate, key, clients string }

func (f *metricsFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen-metrics", "", "`ADDRESS` of /metrics for other machines, by TLS with client certificates (default: none)")
	flags.StringVar(&f.certificate, "metrics-cert", "", "PEM `FILE` with the certificate for --listen-metrics; it is read again for each connection")
	flags.StringVar(&f.key, "metrics-key", "", "PEM `FILE` with the private key of --metrics-cert")
	flags.StringVar(&f.clients, "metrics-client-ca", "", "PEM `FILE` with the authorities that must have signed the clients' certificates")
}

// serve serves the metrics until the server is closed. It returns nil if there is no address. As at the address of --listen,
// neither an address that somebody else has nor a file ends the agent's work.
func (f *metricsFlags) serve(ctx context.Context, metrics *node.Metrics, log *logrus.Logger) (*http.Server, error) {
	given := f.certificate != "" || f.key != "" || f.clients != ""
	if f.listen == "" && !given {
		return nil, nil
	}
	if f.listen == "" || f.certificate == "" || f.key == "" || f.clients == "" {
		return nil, fault.New(fault.Usage, "cannot serve metrics to other machines: --listen-metrics, --metrics-cert, --metrics-key and --metrics-client-ca must be given together").
			WithHint("on the machine itself they are at the address of --listen, without a certificate")
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return nil, fault.New(fault.Usage, "cannot listen: %w", err).WithHint("name an address and a port with --listen-metrics")
	}
	if _, err := f.config(ctx); err != nil {
		log.WithError(err).Warn("metrics are not served to other machines until the files can be used")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", metricsOf(metrics))
	server := guard.Server(mux)
	server.ErrorLog = errorLog(log)
	settings := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return f.config(hello.Context()) }}
	listen(ctx, f.listen, "--listen-metrics", server, log, func(l net.Listener) net.Listener { return tls.NewListener(guard.Small(l), settings) })
	return server, nil
}

// config reads the files, which whoever issues certificates may have replaced. Metrics are read every half a
// minute, so nothing is kept. A connection for which they cannot be used is refused, and the next one tries again.
func (f *metricsFlags) config(ctx context.Context) (*tls.Config, error) {
	var texts [3][]byte
	for i, file := range []input.File{
		{What: "the certificate", Path: f.certificate}, {What: "the certificate's key", Path: f.key}, {What: "the authorities of clients", Path: f.clients},
	} {
		var err error
		if texts[i], err = file.Read(ctx); err != nil {
			return nil, err
		}
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(texts[2]) {
		return nil, errors.New(f.clients + " has no certificate")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
	}, nil
}
