package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pinning"
)

func pinningCommand() *cobra.Command {
	return cli.Group("pinning", "Generate, check and apply CPU partitioning: sets, files, pods", cpusetCommand(), pinningGenerateCommand(), pinningCheckCommand(), pinningMutateCommand())
}

// generateFlags are the inputs of pinning generate.
type generateFlags struct {
	role, name, dropIn, format, directory string
	cpusets                               []string
}

func pinningGenerateCommand() *cobra.Command {
	var flags generateFlags
	cmd := &cobra.Command{
		Use:   "generate --role ROLE --cpuset WORKLOAD=SET",
		Short: "Generate the CPU partitioning files, as a MachineConfig or in a directory",
		Long: "Generate the files of CPU partitioning, as a MachineConfig or below a directory.\n" +
			"Without --cpuset, CPU partitioning is off and nothing is written.",
		Example: "  pivotctl pinning generate --role worker --cpuset management=0-1,52-53",
		RunE:    func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	addRole(cmd, &flags.role, "`ROLE` of the machines: master, worker or the name of a pool")
	cmd.Flags().StringArrayVar(&flags.cpusets, "cpuset", nil, "CPUs of a workload: `WORKLOAD=SET`, such as management=0-1,52-53 (repeatable)")
	cli.Suggest(cmd, "cpuset", pinning.Management+"=")
	cmd.Flags().StringVar(&flags.name, "name", "", "`NAME` of the MachineConfig (default: 02-ROLE-workload-partitioning)")
	cmd.Flags().StringVar(&flags.dropIn, "drop-in", filepath.Base(pinning.DropInPath), "file `NAME` of the CRI-O drop-in")
	cmd.Flags().StringVar(&flags.directory, "directory", "", "write the plain files below `DIR` instead")
	cli.Directories(cmd, "directory")
	addObjectOutput(cmd, &flags.format, "output format; ignition: only the Ignition config", "ignition")
	return cmd
}

func (f *generateFlags) run(cmd *cobra.Command) error {
	workloads, err := cli.Workloads(f.cpusets)
	if err != nil {
		return err
	}
	path, note, err := pinning.DropInNamed(f.dropIn)
	if err != nil {
		return fault.New(fault.Usage, "cannot use --drop-in: %w", err)
	}
	if len(workloads) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "pivotctl: note: no CPU set is given, so CPU partitioning stays off: there is no file to write")
		return nil
	}
	if note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "pivotctl: warning:", note)
	}
	files := []hostfiles.File{
		hostfiles.NewFile(path, 0o644, pinning.DropIn(workloads)),
		hostfiles.NewFile(pinning.KubeletPath, 0o644, pinning.KubeletFile(workloads)),
	}
	if f.directory != "" {
		return writeBelow(f.directory, files)
	}
	if f.role == "" {
		return fault.New(fault.Usage, "no --role given").WithHint("it is the role of the machines: master, worker or a pool's name; or give --directory")
	}
	warnRole(cmd.ErrOrStderr(), f.role)
	name := cmp.Or(f.name, "02-"+f.role+"-workload-partitioning")
	return writeManifest(cmd.OutOrStdout(), authored.Manifest{Name: name, Role: f.role, Files: files}, f.format)
}

// writeManifest writes a manifest in the requested format.
func writeManifest(w io.Writer, m authored.Manifest, format string) error {
	if err := m.Check(); err != nil {
		return fault.New(fault.Usage, "%w", err)
	}
	text, err := map[string]func() ([]byte, error){"yaml": m.YAML, "json": m.JSON, "ignition": m.Ignition}[format]()
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// writeBelow writes files below a directory that represents the machine's root.
func writeBelow(root string, files []hostfiles.File) error {
	for _, f := range files {
		name := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fault.New(fault.CannotWrite, "cannot write %s: %w", name, err)
		}
		if err := os.WriteFile(name, f.Content, f.Mode); err != nil {
			return fault.New(fault.CannotWrite, "cannot write: %w", err)
		}
	}
	return nil
}
