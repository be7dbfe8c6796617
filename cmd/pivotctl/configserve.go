package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/problem"
)

// serveFlags are the inputs of a config server.
type serveFlags struct {
	renderFlags
	listen, cert, key, program string
	reload                     time.Duration
	connections, perAddress    int
}

func serveCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve --listen ADDR DIR|FILE…",
		Short: "Serve Ignition configs to machines, like the machine-config server",
		Long: "Serve Ignition configs to machines at /config/ROLE, like the machine-config server, in the version that each\n" +
			"machine accepts; /healthz reports the state of the server. Files are read again when they change.",
		Example: "  pivotctl config serve --listen 10.0.0.1:22624 conf/\n" +
			"  pivotctl config serve --listen :22623 --tls-cert mcs.pem --tls-key mcs.key conf/",
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args) },
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.listen, "listen", "localhost:22624", "listen on the address `ADDR`")
	cmd.Flags().StringVar(&flags.cert, "tls-cert", "", "PEM `FILE` with the certificate, followed by its chain")
	cmd.Flags().StringVar(&flags.key, "tls-key", "", "PEM `FILE` with the certificate's private key")
	cmd.Flags().DurationVar(&flags.reload, "reload", 5*time.Second, "check the files for changes every `DURATION`")
	cmd.Flags().IntVar(&flags.connections, "max-connections", 8192, "maximum `NUMBER` of open connections; more wait")
	cmd.Flags().IntVar(&flags.perAddress, "max-connections-per-address", 2048,
		"maximum `NUMBER` of open connections per client address; more are reset (behind a load balancer, all machines may share one address)")
	addEmbed(cmd, &flags.program)
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command, paths []string) error {
	if (f.cert == "") != (f.key == "") {
		return fault.New(fault.Usage, "--tls-cert and --tls-key go together")
	}
	if f.reload <= 0 || f.connections <= 0 || f.perAddress <= 0 {
		return fault.New(fault.Usage, "--reload, --max-connections and --max-connections-per-address must be more than nothing")
	}
	more, err := embedded(cmd.Context(), f.program)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	log := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(cmd.ErrOrStderr(), printable.Text(line))
	}
	server := &provision.Server{
		Load: func(ctx context.Context) (provision.Content, error) { return f.load(ctx, paths, more, log) },
		Stamp: func() (string, error) {
			return stamp(slices.Concat(paths, []string{f.cert, f.key, f.policy.File, f.ca}))
		},
		Log: log, MaxConnections: f.connections, MaxPerAddress: f.perAddress,
	}
	if err := server.Reload(cmd.Context()); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fault.New(fault.Unavailable, "cannot listen: %w", err)
	}
	log("serving on " + listener.Addr().String())
	ticker := time.NewTicker(f.reload)
	defer ticker.Stop()
	go server.Watch(cmd.Context(), ticker.C)
	return server.Serve(cmd.Context(), listener)
}

// load renders the MachineConfigs of every role.
func (f *serveFlags) load(ctx context.Context, paths []string, more []ignition.Config, log func(string)) (provision.Content, error) {
	var content provision.Content
	r, err := f.renderer(ctx)
	if err != nil {
		return content, err
	}
	content.More = slices.Concat(more, r.onMachines())
	all, report, err := authored.Read(ctx, paths, strings.NewReader(""), r.Rules)
	if err != nil {
		return content, err
	}
	if !report.Failed() {
		var together problem.Report
		if content.Roles, together, err = r.MergeAll(ctx, all); err != nil {
			return content, err
		}
		report = append(report, together...)
	}
	if err := report.Err("the MachineConfigs"); err != nil {
		return content, err
	}
	for _, p := range report {
		log(p.String())
	}
	for _, role := range authored.Roles(all) {
		log(fmt.Sprintf("role %s: %s", role, content.Roles[role].Name))
	}
	if f.cert != "" {
		if content.Certificate, err = f.certificate(ctx); err != nil {
			return content, err
		}
	}
	return content, r.keep()
}

func (f *serveFlags) certificate(ctx context.Context) (*tls.Certificate, error) {
	cert, err := input.File{What: "the certificate", Path: f.cert}.Read(ctx)
	if err != nil {
		return nil, err
	}
	key, err := input.File{What: "the certificate's key", Path: f.key}.Read(ctx)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot use the certificate: %w", err)
	}
	return &pair, nil
}

// stamp returns a fingerprint of the files that changes whenever one of them changes.
func stamp(paths []string) (string, error) {
	files, report := authored.Files(slices.DeleteFunc(paths, func(path string) bool { return path == "" }))
	if err := report.Err("the files to serve"); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&b, file, info.Size(), info.ModTime().UnixNano())
	}
	return b.String(), nil
}
