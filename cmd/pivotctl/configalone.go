package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/osimage/imageref"
)

// aloneFlags ask for a machine without a cluster, and without files of MachineConfigs.
type aloneFlags struct {
	image             string
	arguments, files  []string
	url, hash, butane string
}

func (f *aloneFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.image, "image", "", "OS `IMAGE` of a machine without a cluster, in place of ROLE and FILE")
	cmd.Flags().StringArrayVar(&f.arguments, "append-karg", nil, "kernel argument `ARG` of this machine (repeatable)")
	cmd.Flags().StringArrayVar(&f.files, "file", nil, "file of this machine: `PATH=FILE` (repeatable)")
	cmd.Flags().StringVar(&f.url, "pivot-url", "", "`URL` from which this machine fetches pivot, for boot images without it")
	cmd.Flags().StringVar(&f.hash, "pivot-hash", "", "`HASH` of the program at --pivot-url: sha256-HEX or sha512-HEX")
	cmd.Flags().StringVar(&f.butane, "butane", "", "Butane `FILE` to print with the config merged, for the same machine")
	cli.Suggest(cmd, "append-karg")
	cli.Suggest(cmd, "pivot-url")
	cli.Suggest(cmd, "pivot-hash")
}

// checkUse returns an error unless the flags are those of one use: files of a role, or --image.
func (f *aloneFlags) checkUse(cmd *cobra.Command, role string, args []string) error {
	switch only := f.given(cmd); {
	case f.image != "" && len(args)+len(role) > 0:
		return fault.New(fault.Usage, "--image is for a machine without MachineConfigs: --role and %s do not apply", strings.Join(append([]string{"FILE"}, args...), " ")).
			WithHint("with MachineConfigs, --os-image-url names an image where they do not")
	case f.image == "" && len(only) > 0:
		return fault.New(fault.Usage, "%s has no effect without --image", strings.Join(only, ", ")).WithHint("give the OS image of the machine: --image HOST/PATH:TAG")
	case f.image == "" && len(args) == 0:
		return fault.New(fault.Usage, "%s: no FILE|DIR given", cmd.CommandPath()).WithHint("give files of MachineConfigs, or --image for a machine without a cluster")
	}
	return nil
}

// given returns the flags that only this use has, except --image.
func (f *aloneFlags) given(cmd *cobra.Command) (names []string) {
	for _, name := range []string{"append-karg", "file", "pivot-url", "pivot-hash", "butane"} {
		if cmd.Flags().Changed(name) {
			names = append(names, "--"+name)
		}
	}
	return names
}

// print prints the Ignition config, or a Butane config that merges it.
func (f *aloneFlags) print(cmd *cobra.Command, version string, rules authored.Rules, more []ignition.Config) error {
	machine, err := f.machine(cmd.Context(), cmd.InOrStdin())
	if f.url != "" || f.hash != "" {
		config, wrong := provision.Fetch(f.url, f.hash)
		more, err = append(more, config), fault.Join(err, wrong)
	}
	if err != nil {
		return err
	}
	raw, report := machine.Config(rules, version, more...)
	if err := shown(cmd.ErrOrStderr(), report); err != nil {
		return err
	}
	if len(raw) > provision.MaxAlone {
		return fault.New(fault.BadInput, "the config has %d bytes, and user data may have %d", len(raw), provision.MaxAlone).
			WithHint("put files into the image, or fetch pivot by --pivot-url instead of embedding it")
	}
	if f.butane == "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", raw)
		return err
	}
	text, err := input.File{What: "the Butane config", Path: f.butane, Max: document.MaxSize, Stdin: cmd.InOrStdin()}.Read(cmd.Context())
	if err != nil {
		return err
	}
	if text, err = provision.IntoButane(text, raw); err == nil {
		_, err = cmd.OutOrStdout().Write(text)
	}
	return err
}

// machine returns the machine that the flags describe.
func (f *aloneFlags) machine(ctx context.Context, stdin io.Reader) (m provision.Alone, err error) {
	if _, wrong := imageref.Parse(f.image); wrong != nil {
		err = fault.New(fault.Usage, "cannot use --image: %w", wrong)
	}
	m = provision.Alone{Image: f.image, Arguments: f.arguments}
	for _, file := range f.files {
		name, from, named := strings.Cut(file, "=")
		if !named || from == "" {
			err = fault.Join(err, fault.New(fault.Usage, "cannot use --file %q: it is not PATH=FILE", file).WithHint("an example: --file /etc/motd=motd.txt"))
			continue
		}
		content, wrong := input.File{What: "the file " + name, Path: from, Max: input.MaxText, Stdin: stdin}.Read(ctx)
		if wrong == nil {
			var written ignition.File
			written, wrong = provision.NewFile(name, content)
			m.Files = append(m.Files, written)
		}
		err = fault.Join(err, wrong)
	}
	return m, err
}
