package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/fault"
	"machine-pivot/host"
	"machine-pivot/hostfiles"
	"machine-pivot/internal/cli"
	"machine-pivot/osimage"
	"machine-pivot/osimage/imageref"
	"machine-pivot/ostree"
	"machine-pivot/printable"
	"machine-pivot/status"
)

func imageCommand() *cobra.Command {
	return cli.Group("image", "OS images: look at one, import one", imageInspectCommand(), imageImportCommand())
}

// imageFlags are the flags of the commands that read an image.
type imageFlags struct {
	cli.Output
	root, authFile, architecture string
}

func (f *imageFlags) add(cmd *cobra.Command) {
	f.Output.Add(cmd)
	cmd.Flags().StringVar(&f.root, "root", "/", "root directory whose pull secrets, certificates and policy count")
	cmd.Flags().StringVar(&f.authFile, "authfile", "", "pull secret (default: the first known place that has one for the registry)")
	cmd.Flags().StringVar(&f.architecture, "arch", host.Architecture(), "architecture of the machine that the image is for, as s390x")
}

// open looks an image up. It must be closed.
func (f *imageFlags) open(cmd *cobra.Command, text string) (*osimage.Opened, error) {
	if err := cli.CheckRoot(f.root); err != nil {
		return nil, err
	}
	ref, err := imageref.Parse(text)
	if err != nil {
		return nil, err
	}
	puller := &osimage.Puller{Root: f.root, AuthFile: f.authFile, Architecture: f.architecture, Log: noteTo(status.NewLog(cmd.ErrOrStderr(), nil))}
	return puller.Open(cmd.Context(), ref)
}

func imageInspectCommand() *cobra.Command {
	var flags imageFlags
	cmd := &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "Show what an OS image is: format, commit, version, layers",
		Args:  cli.Usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, err := flags.open(cmd, args[0])
			if err != nil {
				return err
			}
			defer image.Close()
			return flags.Write(cmd.OutOrStdout(), image.Image, func(w io.Writer) { printImage(w, image.Image) })
		},
	}
	flags.add(cmd)
	return cmd
}

func printImage(w io.Writer, image osimage.Image) {
	fmt.Fprintf(w, "reference  %s\n", image.Reference)
	if !image.Source.IsZero() {
		fmt.Fprintf(w, "read from  %s\n", image.Source)
	}
	if image.Architecture != "" {
		fmt.Fprintf(w, "built for  %s\n", image.Architecture)
	}
	fmt.Fprintf(w, "digest     %s\npolicy     %s\nformat     %s\ncommit     %s\nversion    %s\nlayers     %d, %d bytes\n",
		image.Digest, printable.Line(image.Policy), image.Format, image.Commit, printable.Line(image.Version), len(image.Layers), image.Bytes)
	if image.Derived > 0 {
		fmt.Fprintf(w, "           %d of an ostree commit, %d derived\n", len(image.Layers)-image.Derived, image.Derived)
	}
}

// notRepository is why a directory cannot be imported into.
func notRepository(path string, err error) error {
	f := fault.New(fault.BadInput, "%w", err)
	if errors.Is(err, fs.ErrPermission) {
		return f
	}
	return f.WithHint("it must be an ostree repository of mode bare: the host's is /ostree/repo, and ostree init --mode=bare --repo=%s makes one", path)
}

func imageImportCommand() *cobra.Command {
	var flags imageFlags
	var repoPath string
	cmd := &cobra.Command{
		Use:   "import IMAGE --repo PATH",
		Short: "Import an OS image's ostree commit into a bare repository, every byte verified",
		Args:  cli.Usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if repoPath == "" {
				return fault.New(fault.Usage, "no --repo given").WithHint("the host's repository is /ostree/repo")
			}
			repo, err := ostree.OpenRepo(repoPath)
			if err != nil {
				return notRepository(repoPath, err)
			}
			if err := hostfiles.CheckWritable(filepath.Join(repoPath, "objects")); err != nil {
				return fault.New(fault.CannotWrite, "cannot write to repository %s: %w", repoPath, err)
			}
			image, err := flags.open(cmd, args[0])
			if err != nil {
				return err
			}
			defer image.Close()
			result, err := image.Import(cmd.Context(), repo, showProgress(os.Stderr, time.Now))
			if err != nil {
				return err
			}
			for _, note := range result.Notes {
				noteTo(status.NewLog(cmd.ErrOrStderr(), nil))(note)
			}
			return flags.Write(cmd.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %d of %d objects new, %d bytes fetched, %d written, %.1f s\n",
					result.Commit, result.Objects.New, result.Objects.Total, result.Bytes.Fetched, result.Bytes.Written, result.Seconds)
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&repoPath, "repo", "", "the repository, of mode bare")
	return cmd
}
