package main

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/legacy"
	"machine-pivot/internal/author/pool"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/mcfile"
)

// renderFlags are the inputs for rendering MachineConfigs.
type renderFlags struct {
	ruleFlags
	images   authored.Images
	lock, ca string
	update   bool
}

func (f *renderFlags) add(cmd *cobra.Command) {
	f.ruleFlags.add(cmd)
	cmd.Flags().StringVar(&f.images.OS, "os-image-url", "", "OS `IMAGE` to use if the MachineConfigs name none")
	cmd.Flags().StringVar(&f.images.Extensions, "extensions-image", "", "`IMAGE` with the packages of extensions, to use if the MachineConfigs name none")
	cmd.Flags().StringVar(&f.lock, "lock", "", "`FILE` that records what was fetched, so that later runs give the same result or report what changed")
	cmd.Flags().BoolVar(&f.update, "update-lock", false, "accept changes since the lock file was written")
	cmd.Flags().StringVar(&f.ca, "ca", "", "PEM `FILE` with certificate authorities to trust when fetching, in addition to the system's")
}

// renderer returns a renderer that merges MachineConfigs, and a function to call after a
// successful merge, which saves the lock file.
func (f *renderFlags) renderer() (r pool.Renderer, keep func() error, err error) {
	if r.Rules, err = f.rules(); err != nil {
		return r, nil, err
	}
	if f.images.OS != "" {
		if err := r.Rules.CheckImage(f.images.OS); err != nil {
			return r, nil, fault.New(fault.Usage, "cannot use --os-image-url: %w", err)
		}
	}
	r.Base = f.images
	taker := snapshot.New(r.Rules.KernelArguments)
	taker.Accept = f.update
	if taker.Roots, err = f.roots(); err != nil {
		return r, nil, err
	}
	r.Inline = taker.Inline
	keep = func() error { return nil }
	if f.lock != "" {
		keep, err = f.useLock(taker)
	}
	return r, keep, err
}

// useLock reads the lock file. The function that it returns writes the file if it has changed.
func (f *renderFlags) useLock(taker *snapshot.Taker) (func() error, error) {
	old, err := os.ReadFile(f.lock)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.BadInput, "cannot read the lock file: %w", err)
	}
	if taker.Lock, err = snapshot.ParseLock(old); err != nil {
		return nil, err
	}
	return func() error {
		now := taker.Lock.JSON()
		if string(now) == string(old) {
			return nil
		}
		if err := hostfiles.Replace(hostfiles.OS{}, f.lock, now, 0o644); err != nil {
			return fault.New(fault.CannotWrite, "cannot keep the lock file: %w", err)
		}
		old = now
		return nil
	}, nil
}

// onMachines returns the checks of machines' first boots, and configs that install the same
// kernel argument policy there.
func (f *renderFlags) onMachines() (mcfile.Host, []ignition.Config, error) {
	rules, err := f.rules()
	if err != nil {
		return mcfile.Host{}, nil, err
	}
	host := mcfile.Host{CheckImage: rules.CheckImage, Policy: &rules.KernelArguments}
	text, err := f.policyText()
	if err != nil || text == nil {
		return host, nil, err
	}
	return host, []ignition.Config{provision.KargPolicy(text)}, nil
}

func (f *renderFlags) roots() (string, error) {
	if f.ca == "" {
		return "", nil
	}
	text, err := os.ReadFile(f.ca)
	if err == nil {
		if block, _ := pem.Decode(text); block == nil {
			err = fmt.Errorf("%s has no PEM block", f.ca)
		}
	}
	if err != nil {
		return "", fault.New(fault.BadInput, "cannot use --ca: %w", err)
	}
	return string(text), nil
}

// rendered returns the MachineConfig of a role from files and directories. Problems are written
// to stderr.
func (f *renderFlags) rendered(ctx context.Context, role string, paths []string, stdin io.Reader, stderr io.Writer) (*authored.MachineConfig, error) {
	if role == "" {
		return nil, fault.New(fault.Usage, "no --role given").WithHint("roles are what the label %s says, as worker", authored.RoleLabel)
	}
	r, keep, err := f.renderer()
	if err != nil {
		return nil, err
	}
	all, report, err := pool.Read(paths, stdin, r.Rules)
	if err != nil {
		return nil, err
	}
	if err := shown(stderr, report); err != nil {
		return nil, err
	}
	if err := checkRole(role, "roles of the MachineConfigs", pool.Roles(all)); err != nil {
		return nil, err
	}
	merged, report, err := r.Merge(ctx, all, role)
	if err := cmp.Or(err, shown(stderr, report)); err != nil {
		return nil, err
	}
	return merged, keep()
}

// objectCommand returns the merge or the render command, which differ in the name of the
// result.
func objectCommand(use, short, example string, name func(*authored.MachineConfig, string)) *cobra.Command {
	var flags renderFlags
	var role, format string
	cmd := &cobra.Command{
		Use:     use + " --role ROLE FILE|DIR…",
		Short:   short,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			merged, err := flags.rendered(cmd.Context(), role, args, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			name(merged, role)
			return writeObjects(cmd.OutOrStdout(), format, merged)
		},
	}
	flags.add(cmd)
	addObjectOutput(cmd, &format, "output format")
	addRole(cmd, &role, "`ROLE` of the machines, such as worker")
	return cmd
}

func mergeCommand() *cobra.Command {
	return objectCommand("merge", "Merge the MachineConfigs of a role into one, with remote contents included", "  pivotctl config merge --role worker conf/",
		func(m *authored.MachineConfig, role string) {
			m.Name = "merged-" + role
			m.Labels = map[string]string{authored.RoleLabel: role}
		})
}

func renderCommand() *cobra.Command {
	return objectCommand("render", "Like merge, but name the result rendered-ROLE-HASH as in a cluster", "  pivotctl config render --role worker --lock conf.lock conf/ -o json",
		func(*authored.MachineConfig, string) {})
}

func ignitionCommand() *cobra.Command {
	var flags renderFlags
	var role, version, program string
	cmd := &cobra.Command{
		Use:   "ignition --role ROLE FILE|DIR…",
		Short: "Generate the Ignition config of a new machine, with its MachineConfig",
		Example: "  pivotctl config ignition --role worker conf/\n" +
			"  pivotctl config ignition --role worker --embed-pivot /usr/bin/pivot --lock conf.lock conf/",
		RunE: func(cmd *cobra.Command, args []string) error {
			more, err := embedded(program)
			if err != nil {
				return err
			}
			judge, policy, err := flags.onMachines()
			if err != nil {
				return err
			}
			merged, err := flags.rendered(cmd.Context(), role, args, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			raw, report := provision.Config(merged, version, append(more, policy...)...)
			if program != "" {
				report = append(report, provision.FirstBoot(merged, judge)...)
			} else if !report.Failed() { // the first boot may be done by pivot or a cluster's daemon
				report = append(report, firstBootWarnings(merged, role, judge)...)
			}
			if err := shown(cmd.ErrOrStderr(), report); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", raw)
			return err
		},
	}
	flags.add(cmd)
	addRole(cmd, &role, "`ROLE` of the machines, such as worker")
	version = ignition.Version
	cli.OneOf{Value: &version, Allowed: legacy.Versions()}.Add(cmd, "spec-version", "version of the Ignition specification")
	addEmbed(cmd, &program)
	return cmd
}

func addEmbed(cmd *cobra.Command, program *string) {
	cmd.Flags().StringVar(program, "embed-pivot", "", "static pivot binary `FILE` to install, with its units, for boot images without pivot")
}

// embedded returns the config that installs the program on machines, if one is given.
func embedded(program string) ([]ignition.Config, error) {
	if program == "" {
		return nil, nil
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot embed the program: %w", err)
	}
	config, err := provision.Embed(data)
	return []ignition.Config{config}, err
}
