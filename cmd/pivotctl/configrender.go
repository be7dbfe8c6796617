package main

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/ignition"
)

// renderFlags are the inputs for rendering MachineConfigs.
type renderFlags struct {
	ruleFlags
	os, extensions string // images
	lock, ca       string
	update         bool
}

func (f *renderFlags) add(cmd *cobra.Command) {
	f.ruleFlags.add(cmd)
	cmd.Flags().StringVar(&f.os, "os-image-url", "", "OS `IMAGE` to use if the MachineConfigs name none")
	cmd.Flags().StringVar(&f.extensions, "extensions-image", "", "`IMAGE` with the packages of extensions, to use if the MachineConfigs name none")
	cmd.Flags().StringVar(&f.lock, "lock", "", "`FILE` that records what was fetched, so that later runs give the same result or report what changed")
	cmd.Flags().BoolVar(&f.update, "update-lock", false, "accept changes since the lock file was written")
	cmd.Flags().StringVar(&f.ca, "ca", "", "PEM `FILE` with certificate authorities to trust when fetching, in addition to the system's")
}

// renderer merges MachineConfigs as the flags say. The files that they name are read once, since a pipe
// cannot be read again.
type renderer struct {
	authored.Renderer
	policy []byte       // text of the administrator's policy for kernel arguments; nil: there is none
	keep   func() error // to call after a successful merge: it saves the lock file
}

func (f *renderFlags) renderer(ctx context.Context) (r renderer, err error) {
	var wrong [5]error // of flags that do not depend on each other
	r.Rules, r.policy, wrong[0] = f.rules(ctx)
	r.Base.OS, wrong[1] = authored.DefaultImage("--os-image-url", f.os)
	r.Base.Extensions, wrong[2] = authored.DefaultImage("--extensions-image", f.extensions)
	taker := snapshot.New(r.Rules.KernelArguments)
	taker.Accept = f.update
	taker.Roots, wrong[3] = f.roots(ctx)
	r.Inline = taker.Inline
	r.keep, wrong[4] = f.useLock(ctx, taker)
	return r, fault.Join(wrong[:]...)
}

// useLock reads the lock file, if one is given. The function that it returns writes the file if it has
// changed.
func (f *renderFlags) useLock(ctx context.Context, taker *snapshot.Taker) (func() error, error) {
	if f.lock == "" {
		return func() error { return nil }, nil
	}
	old, err := input.File{What: "the lock file", Path: f.lock}.Read(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if taker.Lock, err = snapshot.ParseLock(old); err != nil {
		return nil, err
	}
	return func() error {
		now := taker.Lock.JSON()
		if string(now) == string(old) {
			return nil
		}
		if err := hostfiles.ReplaceNamed(hostfiles.OS{}, f.lock, now, 0o644); err != nil {
			return fault.New(fault.CannotWrite, "cannot keep the lock file: %w", err)
		}
		old = now
		return nil
	}, nil
}

// onMachines returns configs that install the same kernel argument policy on machines.
func (r renderer) onMachines() []ignition.Config {
	if r.policy == nil {
		return nil
	}
	return []ignition.Config{provision.KargPolicy(r.policy)}
}

func (f *renderFlags) roots(ctx context.Context) (string, error) {
	if f.ca == "" {
		return "", nil
	}
	text, err := input.File{What: "the authorities", Path: f.ca}.Read(ctx)
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

// needRole returns an error if no role is given.
func needRole(role string) error {
	if role == "" {
		return fault.New(fault.Usage, "no --role given").WithHint("roles are what the label %s says, as worker", authored.RoleLabel)
	}
	return nil
}

// rendered returns the MachineConfig of a role from files and directories. Problems are written
// to stderr.
func (r renderer) rendered(ctx context.Context, role string, paths []string, stdin io.Reader, stderr io.Writer) (*authored.MachineConfig, error) {
	all, report, err := authored.Read(ctx, paths, stdin, r.Rules)
	if err != nil {
		return nil, err
	}
	if err := shown(stderr, report); err != nil {
		return nil, err
	}
	if err := checkRole(role, "roles of the MachineConfigs", authored.Roles(all)); err != nil {
		return nil, err
	}
	merged, report, err := r.Merge(ctx, all, role)
	if err := cmp.Or(err, shown(stderr, report)); err != nil {
		return nil, err
	}
	return merged, r.keep()
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
			r, err := flags.renderer(cmd.Context())
			if err := fault.Join(needRole(role), err); err != nil {
				return err
			}
			merged, err := r.rendered(cmd.Context(), role, args, cmd.InOrStdin(), cmd.ErrOrStderr())
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
	var alone aloneFlags
	var role, version, program string
	cmd := &cobra.Command{
		Use:   "ignition [FILE|DIR…]",
		Short: "Generate the Ignition config of a new machine, with its MachineConfig",
		Long: "Generate the Ignition config of a new machine, with its MachineConfig: that of a role of a cluster, from files,\n" +
			"or, with --image, one for a machine without a cluster.",
		Example: "  pivotctl config ignition --role worker conf/\n" +
			"  pivotctl config ignition --role worker --embed-pivot /usr/bin/pivot --lock conf.lock conf/\n" +
			"  pivotctl config ignition --image quay.io/fedora/fedora-coreos:stable --append-karg nosmt --file /etc/motd=motd.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := alone.checkUse(cmd, role, args); err != nil {
				return err
			}
			more, wrong := embedded(cmd.Context(), program)
			r, err := flags.renderer(cmd.Context())
			if alone.image != "" {
				if err := fault.Join(wrong, err); err != nil {
					return err
				}
				return alone.print(cmd, version, r.Rules, append(more, r.onMachines()...))
			}
			if err := fault.Join(needRole(role), wrong, err); err != nil {
				return err
			}
			merged, err := r.rendered(cmd.Context(), role, args, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			raw, report := provision.Config(merged, version, append(more, r.onMachines()...)...)
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
	cli.OneOf{Value: &version, Allowed: authored.IgnitionVersions()}.Add(cmd, "spec-version", "version of the Ignition specification")
	addEmbed(cmd, &program)
	alone.add(cmd)
	return cmd
}

func addEmbed(cmd *cobra.Command, program *string) {
	cmd.Flags().StringVar(program, "embed-pivot", "", "static pivot binary `FILE` to install, with its units, for boot images without pivot")
}

// embedded returns the config that installs the program on machines, if one is given.
func embedded(ctx context.Context, program string) ([]ignition.Config, error) {
	if program == "" {
		return nil, nil
	}
	data, err := input.File{What: "the program to embed,", Path: program, Max: input.MaxProgram}.Read(ctx)
	if err != nil {
		return nil, err
	}
	config, err := provision.Embed(data)
	return []ignition.Config{config}, err
}
