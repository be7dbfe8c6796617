package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	yaml "go.yaml.in/yaml/v3"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/input"
)

// pointerFlags are the flags of the pointer command.
type pointerFlags struct {
	url, ca, version    string
	tokenFile, newToken string
	uses, namespace     string
	valid               time.Duration
}

func pointerCommand() *cobra.Command {
	var f pointerFlags
	cmd := &cobra.Command{
		Use:   "pointer --url https://HOST:22623/config/ROLE",
		Short: "Generate the small Ignition config that points to a config server, for user data",
		Long: "Generate the small Ignition config that points to a config server, for the user data of new machines. With\n" +
			"--new-token, it has a new token, and FILE gets the Secret that makes \"pivot-fleet server\" accept it.",
		Example: "  pivotctl config pointer --url https://mcs.example:22623/config/worker --server-ca ca.pem --new-token worker-1.yaml\n" +
			"  pivotctl config pointer --url https://mcs.example:22623/config/worker --server-ca ca.pem --token-file worker.token",
		Args: cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), time.Now())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "`URL` of the config on the server")
	flags.StringVar(&f.ca, "server-ca", "", "PEM `FILE` with the authorities of the server's certificate (default: those of the boot image)")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with an existing token for the server")
	flags.StringVar(&f.newToken, "new-token", "", "make a new token, and write its Secret to `FILE`")
	flags.StringVar(&f.uses, "uses", "1", "how many machines may use the new token, a `NUMBER` or unlimited")
	flags.DurationVar(&f.valid, "valid", 24*time.Hour, "make the new token valid for `DURATION`")
	flags.StringVar(&f.namespace, "namespace", "pivot-fleet-server", "`NAMESPACE` of the new token's Secret")
	f.version = "3.1.0" // which all Ignitions of version 3 read that can send a token
	cli.OneOf{Value: &f.version, Allowed: authored.IgnitionVersions()}.Add(cmd, "spec-version", "version of the Ignition specification")
	return cmd
}

func (f *pointerFlags) run(ctx context.Context, stdin io.Reader, stdout io.Writer, now time.Time) error {
	if f.tokenFile != "" && f.newToken != "" {
		return fault.New(fault.Usage, "--token-file and --new-token exclude one another")
	}
	p := provision.Pointer{URL: f.url}
	var err error
	if f.ca != "" {
		if p.CA, err = (input.File{What: "the authorities of the server", Path: f.ca}).Read(ctx); err != nil {
			return err
		}
	}
	switch {
	case f.tokenFile != "":
		text, err := input.File{What: "the token", Path: f.tokenFile, Stdin: stdin}.Read(ctx)
		if err != nil {
			return err
		}
		if p.Token = strings.TrimSpace(string(text)); p.Token == "" || strings.ContainsFunc(p.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return fault.New(fault.BadInput, "cannot use the token: %s does not have one word of ASCII", f.tokenFile).WithHint("write one with: pivotctl config pointer --new-token FILE")
		}
	case f.newToken != "":
		p.Token = provision.NewToken()
	}
	raw, err := p.Config(f.version)
	if err != nil {
		return err
	}
	if f.newToken != "" {
		if err := f.writeSecret(p, now); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "%s\n", raw)
	return err
}

// writeSecret writes the Secret of a new token. Its name has the pool and a part of the digest.
func (f *pointerFlags) writeSecret(p provision.Pointer, now time.Time) error {
	if f.valid < time.Minute {
		return fault.New(fault.Usage, "--valid must be at least 1m")
	}
	role, digest := p.Role(), provision.TokenDigest(p.Token)
	data := provision.TokenData(p.Token, role, now.Add(f.valid), f.uses)
	check := map[string][]byte{}
	for key, value := range data {
		check[key] = []byte(value)
	}
	if _, err := provision.ParseToken(check); err != nil {
		return err
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": provision.TokenSecretType, "stringData": data,
		"metadata": map[string]string{"name": role + "-" + hex.EncodeToString(digest[:4]), "namespace": f.namespace},
	})
	if err != nil {
		return fault.New(fault.Internal, "cannot write the Secret: %w", err)
	}
	if err := hostfiles.ReplaceNamed(hostfiles.OS{}, f.newToken, text, 0o600); err != nil {
		return fault.New(fault.CannotWrite, "cannot write the Secret: %w", err)
	}
	return nil
}
