package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

func imageCommand() *cobra.Command {
	return cli.Group("image", "Inspect and import OS images", imageInspectCommand(), imageImportCommand(), imageCheckCommand())
}

// imageFlags are the flags of the commands that read an image.
type imageFlags struct {
	cli.Output
	quietFlag
	root, authFile, architecture string
}

func (f *imageFlags) add(cmd *cobra.Command, kind api.Kind) {
	f.Output.Add(cmd, kind)
	f.quietFlag.add(cmd)
	cmd.Flags().StringVar(&f.root, "root", "/", "use pull secrets, certificates and policy of the machine with the root directory `DIR`")
	cmd.Flags().StringVar(&f.authFile, "authfile", "", "read the pull secret from `FILE` (default: the first known location that has one for the registry)")
	cmd.Flags().StringVar(&f.architecture, "arch", "", "use the image for the architecture `ARCH`, such as s390x (default: this machine's)")
	cli.Suggest(cmd, "arch", "amd64", "arm64", "ppc64le", "s390x")
	cli.Directories(cmd, "root")
	cmd.ValidArgsFunction = completeImage
}

// checkArchitecture returns a usage error if there is no such architecture.
func (f *imageFlags) checkArchitecture() error {
	if f.architecture == "" || osimage.IsArchitecture(f.architecture) {
		return nil
	}
	return cli.Unknown("arch", f.architecture, "architectures", osimage.Architectures())
}

// noteTo returns a function that logs messages to people.
func (f *imageFlags) noteTo(cmd *cobra.Command) func(string) {
	return noteTo(f.hushed(plainLog(cmd.ErrOrStderr())))
}

// open opens an image, which must be closed.
func (f *imageFlags) open(cmd *cobra.Command, text string) (*osimage.Opened, error) {
	if err := cli.CheckRoot(f.root); err != nil {
		return nil, err
	}
	ref, err := imageref.Parse(text)
	if err != nil {
		return nil, err
	}
	limitMemory(importMemory)
	puller := &osimage.Puller{Root: f.root, AuthFile: f.authFile, Architecture: cmp.Or(f.architecture, host.Architecture()), Log: f.noteTo(cmd)}
	return puller.Open(cmd.Context(), ref)
}

// inspected is the output of "image inspect": what the manifest and config say and, if the
// image was imported, what its content says.
type inspected struct {
	osimage.Image
	Refused  *refusal         `json:"refused,omitempty"` // such as another architecture, which only an import refuses; nil: no known reason
	Imported *osimage.Content `json:"imported,omitempty"`
}

// refusal is the reason why a pivot to an image would be refused.
type refusal struct {
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func refusalOf(err error) *refusal {
	if err == nil {
		return nil
	}
	return &refusal{err.Error(), fault.HintOf(err)}
}

// noHosts returns an error for an image that is no host's: it has none of the labels by which images of all formats are
// known. Only an import shows that one without labels has a repository all the same, so an import does not look at them.
func noHosts(image *osimage.Opened) error {
	if image.Format != osimage.Unknown {
		return nil
	}
	return fault.New(fault.BadInput, "cannot use image %s for a host: no label marks it as a host's", image.Reference).
		WithHint("name an image of a host (bootc, rpm-ostree); whether this one has an ostree repository all the same, pivot image import finds out")
}

func imageInspectCommand() *cobra.Command {
	var flags imageFlags
	var repoPath string
	cmd := &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "Show format, commit, version, base and layers of an OS image",
		Long: "Show format, commit, version, base and layers of an OS image. No layer is fetched.\n" +
			"What is known only from the content, such as SELinux policy and kernel arguments, is shown if the image\n" +
			"is in the repository: see pivot image import. The exit status is 65 if the image is no host's.",
		Example: "  pivot image inspect registry.example/os:4.20\n" +
			"  pivot image inspect oci-archive:/run/media/os.tar -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.checkArchitecture(); err != nil {
				return err
			}
			image, err := flags.open(cmd, args[0])
			if err != nil {
				return err
			}
			defer image.Close()
			other := noHosts(image)
			found := inspected{Image: image.Image, Refused: refusalOf(cmp.Or(image.Refusal(), other))}
			found.Imported, err = contentOf(image, flags.root, repoPath)
			if err != nil && repoPath != "" {
				return err
			}
			if err != nil { // not requested explicitly
				flags.noteTo(cmd)("cannot look for the image in the machine's repository: " + err.Error())
			}
			err = flags.Write(cmd.OutOrStdout(), found, func(w io.Writer) {
				printImage(w, found.Image)
				if r := found.Refused; r != nil {
					fmt.Fprintf(w, "refused    %s\n           %s\n", printable.Line(r.Message), printable.Line(r.Hint))
				}
				if found.Imported != nil {
					printContent(w, *found.Imported)
				}
			})
			return cmp.Or(err, other)
		},
	}
	flags.add(cmd, api.Image)
	cmd.Flags().StringVar(&repoPath, "repo", "", "look for the imported image in the repository `DIR` (default: the machine's)")
	cli.Directories(cmd, "repo")
	return cmd
}

// contentOf returns the content of an image that was imported into the repository at repoPath, by default the one of
// the machine below root. It returns nil without such an import or repository. There is no way to inspect the content
// without an import: "image inspect" fetches no layer, on any machine.
func contentOf(image *osimage.Opened, root, repoPath string) (*osimage.Content, error) {
	sysroot := ostree.OpenSysroot(root)
	repo, err := ostree.OpenRepo(cmp.Or(repoPath, sysroot.RepoPath()))
	if err != nil && repoPath != "" {
		return nil, notRepository(repoPath, err)
	}
	if err != nil {
		return nil, nil
	}
	content, err := image.Content(repo)
	if err != nil || content == nil {
		return nil, err
	}
	return content, compareBooted(content, sysroot)
}

// compareBooted compares an image's SELinux policy with that of the booted system, if there is
// one.
func compareBooted(content *osimage.Content, sysroot *ostree.Sysroot) error {
	booted, err := sysroot.Booted()
	if errors.Is(err, ostree.ErrNotBooted) {
		return nil
	}
	if err != nil {
		return err
	}
	repo, err := ostree.OpenRepo(sysroot.RepoPath())
	if err != nil {
		return err
	}
	policy, err := osimage.Policy(repo, booted.Checksum)
	if err == nil {
		content.Against(policy)
	}
	return err
}

func printImage(w io.Writer, image osimage.Image) {
	fmt.Fprintf(w, "reference  %s\n", image.Reference)
	if !image.Source.IsZero() {
		fmt.Fprintf(w, "read from  %s\n", image.Source)
	}
	if image.Architecture != "" {
		fmt.Fprintf(w, "built for  %s\n", image.Architecture)
	}
	fmt.Fprintf(w, "digest     %s\npolicy     %s\nformat     %s\ncommit     %s\nversion    %s\nlayers     %d, %s\n",
		image.Digest, printable.Line(image.Policy), image.Format, image.Commit, printable.Line(image.Version), len(image.Layers), printable.Size(image.Bytes))
	if image.Derived > 0 {
		fmt.Fprintf(w, "           %d of an ostree commit, %d derived\n", len(image.Layers)-image.Derived, image.Derived)
	}
	if b := image.Base; b != nil && b.Digest+b.Name != "" {
		fmt.Fprintf(w, "base       %s\n", printable.Line(strings.TrimSpace(b.Name+" "+b.Digest)))
	}
}

// printPolicy prints whether the image's SELinux policy differs from another one.
func printPolicy(w io.Writer, other string, changed *bool) {
	switch {
	case changed == nil:
	case *changed:
		fmt.Fprintf(w, "selinux    another policy than %s\n", other)
	default:
		fmt.Fprintf(w, "selinux    the same policy as %s\n", other)
	}
}

// printContent prints what only the content of an imported image says.
func printContent(w io.Writer, c osimage.Content) {
	fmt.Fprintf(w, "imported   %s\n", c.Commit)
	printPolicy(w, "its base's", c.PolicyChangedFromBase)
	printPolicy(w, "the running system's", c.PolicyChangedFromBooted)
	if len(c.KernelArguments) > 0 {
		fmt.Fprintf(w, "arguments  %s\n", printable.Line(c.KernelArguments.String()))
	}
	for _, warning := range c.Warnings {
		fmt.Fprintf(w, "warning    %s\n", printable.Line(warning))
	}
}

// notRepository returns the error for a directory that cannot be imported into.
func notRepository(path string, err error) error {
	f := fault.New(fault.BadInput, "%w", err)
	if errors.Is(err, fs.ErrPermission) {
		return f
	}
	return f.WithHint("it must be an ostree repository of mode bare: the host's is /ostree/repo, and ostree init --mode=bare --repo=%s makes one", path)
}

func imageImportCommand() *cobra.Command {
	var flags imageFlags
	var progress progressFlags
	var repoPath string
	cmd := &cobra.Command{
		Use:   "import IMAGE",
		Short: "Import an image's ostree commit into a bare repository; verify every byte",
		Long: "Import an image's ostree commit into the host's repository, or into another one of mode bare, and verify\n" +
			"every byte. As for a pivot, the host's /sysroot may be mounted read-only.",
		Example: "  pivot image import registry.example/os:4.20\n  pivot image import oci-archive:/run/media/os.tar --repo /srv/repo",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.checkArchitecture(); err != nil {
				return err
			}
			if repoPath == "" && cmd.Flags().Changed("repo") {
				return fault.New(fault.Usage, "no --repo given").WithHint("without --repo, it is the host's repository, /ostree/repo")
			}
			repo, view, err := openRepo(flags.root, repoPath)
			if err != nil {
				return err
			}
			defer view.Close()
			image, err := flags.open(cmd, args[0])
			if err != nil {
				return err
			}
			defer image.Close()
			progress.quietFlag = flags.quietFlag
			result, err := importShown(cmd, image, repo, &progress)
			if err != nil {
				return err
			}
			note := flags.noteTo(cmd)
			for _, text := range result.Notes {
				note(text)
			}
			if len(result.BoundImages) > 0 {
				note(fmt.Sprintf("the image binds application images (/%s): %s", osimage.BoundDir, strings.Join(result.BoundImages, ", ")))
			}
			if len(result.KernelArguments) > 0 {
				note(fmt.Sprintf("the image contains kernel arguments (/%s): %s", osimage.KargsDir, result.KernelArguments))
			}
			return flags.Write(cmd.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %d of %d objects new, %s fetched, %s written, %.1f s\n",
					result.Commit, result.Objects.New, result.Objects.Total, printable.Size(result.Bytes.Fetched), printable.Size(result.Bytes.Written), result.Seconds)
			})
		},
	}
	flags.add(cmd, api.Import)
	progress.add(cmd)
	cli.WhenStopped(cmd, "no commit was added; what was fetched completely is kept, and the same command continues from there")
	cmd.Flags().StringVar(&repoPath, "repo", "", "import into `DIR`, a repository of mode bare (default: the machine's)")
	cli.Directories(cmd, "repo")
	return cmd
}

// openRepo opens the repository at a path for writing, or by default that of the machine below root. The
// machine's can be on a file system that is mounted read-only. The repository can be used until view
// is closed.
func openRepo(root, path string) (repo *ostree.Repo, view io.Closer, err error) {
	sysroot := ostree.OpenSysroot(root)
	own := sysroot.RepoPath()
	path = cmp.Or(path, own)
	if _, err := ostree.OpenRepo(path); err != nil && path == own && errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.New(fault.BadInput, "%w", err).WithHint("this machine has no ostree repository: name one with --repo; ostree init --mode=bare --repo=DIR makes one")
	} else if err != nil {
		return nil, nil, notRepository(path, err)
	}
	if sameFile(path, own) {
		repo, view, err = host.OpenRepo(sysroot)
	} else {
		view = io.NopCloser(nil)
		repo, err = ostree.OpenRepo(path)
	}
	if err != nil {
		return nil, nil, fault.New(fault.CannotWrite, "cannot write to repository %s: %w", path, err)
	}
	if err := host.CheckWritable(repo, path); err != nil {
		return nil, nil, errors.Join(err, view.Close())
	}
	return repo, view, nil
}

// sameFile reports whether two paths lead to the same file.
func sameFile(a, b string) bool {
	of, err := os.Stat(a)
	is, ierr := os.Stat(b)
	return err == nil && ierr == nil && os.SameFile(of, is)
}

// importShown imports an image and shows the progress in the same way as a pivot's pull.
func importShown(cmd *cobra.Command, image *osimage.Opened, repo *ostree.Repo, flags *progressFlags) (osimage.Result, error) {
	_, emit := flags.logTo(cmd.ErrOrStderr())
	report := func(e pivot.Event) {
		e.Step = pivot.StepPull
		emit(e)
	}
	report(pivot.Event{Kind: pivot.EventBegan, Message: "pulling " + image.Reference.String()})
	result, err := image.Import(cmd.Context(), repo, func(p osimage.Progress) {
		report(pivot.Event{Kind: pivot.EventProgressed, Amount: hostimages.AmountOf(p)})
	})
	if err != nil {
		report(pivot.Event{Kind: pivot.EventFailing, Err: err})
		return result, err
	}
	report(pivot.Event{Kind: pivot.EventNoted, Message: "imported commit " + result.Commit})
	return result, nil
}
