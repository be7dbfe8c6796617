package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/bootloader"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostimages"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

// checked is the output of "image check".
type checked struct {
	OK       bool              `json:"ok"`
	Image    string            `json:"image"`
	Commit   string            `json:"commit"`
	Brings   kargs.Line        `json:"kernelArguments"` // of the image
	Findings []verdict.Finding `json:"findings"`
}

func imageCheckCommand() *cobra.Command {
	var flags imageFlags
	var progress progressFlags
	var repoPath, hostFile, bootSize string
	var accept []verdict.Name
	cmd := &cobra.Command{
		Use:   "check IMAGE",
		Short: "Say whether an image is whole, and whether a machine can start it; change no machine",
		Long: "Import an image, as \"pivot image import\" does. Then show what its builder has forgotten, and whether this machine,\n" +
			"or the one of --host, can start it. Programs of the image are run on this machine's processor, where they can\n" +
			"change nothing. Its boot loader is not compared with the installed one. The exit status is 0, or 65 with all\n" +
			"reasons against the image.",
		Example: "  pivot image check registry.example/os:4.20\n" +
			"  pivot image check registry.example/os:4.20 --repo /srv/repo --host node7.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			facts, change, err := factsFor(cmd, flags.root, hostFile)
			if err != nil {
				return err
			}
			boot, err := document.ParseQuantity(bootSize)
			if err != nil {
				return fault.New(fault.Usage, "cannot use --boot-size: %w", err).WithHint("write --boot-size=350M, or 1Gi")
			}
			if flags.architecture == "" {
				flags.architecture = facts.Architecture
			}
			if err := flags.checkArchitecture(); err != nil {
				return err
			}
			progress.quietFlag = flags.quietFlag
			var left []string
			if change.Next, left, err = importForCheck(cmd, &flags, &progress, repoPath, args[0]); err != nil {
				return err
			}
			stage := rehearse.Stage{Self: "/proc/self/exe", Repo: cmp.Or(repoPath, ostree.OpenSysroot(flags.root).RepoPath())}
			result := checked{Image: args[0], Commit: change.Next.String()}
			if result.Brings, err = broughtBy(stage.Repo, change.Next, flags.architecture); err != nil {
				return err
			}
			if result.Findings, err = stage.JudgeImage(cmd.Context(), change.Change, change.on, boot.Value()); err != nil {
				return err
			}
			kernel, _ := bootloader.Loader{Repo: stage.Repo}.Judge(cmd.Context(), bootloader.Change{Next: change.Next, Firmware: facts.Firmware, Layered: facts.Rebuilt})
			result.Findings = append([]verdict.Finding{}, append(result.Findings, kernel...)...)
			_, notes, refused := verdict.Decide(result.Findings, accept)
			result.OK = refused == nil
			err = flags.Write(cmd.OutOrStdout(), result, func(w io.Writer) {
				for _, note := range slices.Concat(facts.Notes, left, notes) {
					fmt.Fprintln(w, printable.Line(note))
				}
				if len(result.Brings) > 0 {
					fmt.Fprintln(w, "the image brings the kernel arguments", printable.Line(result.Brings.String()))
				}
				if result.OK {
					fmt.Fprintln(w, "nothing that was asked speaks against the image")
				}
			})
			if err == nil && refused != nil {
				err = fault.New(fault.BadInput, "%w", refused)
			}
			return err
		},
	}
	flags.add(cmd, api.ImageCheck)
	progress.add(cmd)
	cli.WhenStopped(cmd, "no commit was added; what was fetched completely is kept, and the same command continues from there")
	cmd.Flags().StringVar(&repoPath, "repo", "", "import into `DIR`, a repository of mode bare (default: the machine's)")
	cmd.Flags().StringVar(&hostFile, "host", "", "judge by the `FILE` that pivot facts has printed on another machine (default: this machine)")
	cmd.Flags().StringVar(&bootSize, "boot-size", "0", "`SIZE` of the machines' /boot, such as 350M: two such systems must fit; 0 is not known")
	cmd.Flags().Var(acceptFlag{&accept}, "accept", "do not let the verdict `NAME` refuse the image; repeatable")
	cli.Suggest(cmd, "accept", acceptFlag{}.names()...)
	cli.Directories(cmd, "repo")
	return cmd
}

// judged is what is to be judged besides the next system.
type judged struct {
	rehearse.Change
	on *rehearse.Facts // the machine's; nil: none is known, and only the image is judged
}

// factsFor returns the facts in a file, or those of the machine at root, if it is an ostree host. Of another machine, neither
// its running system nor its own files are known.
func factsFor(cmd *cobra.Command, root, file string) (facts machine.Facts, change judged, err error) {
	h := host.New(root)
	if file != "" {
		err = cli.ReadFacts(cmd, file, &facts, func() bool { return facts.Today != nil })
	} else if _, none := ostree.OpenRepo(h.Sysroot().RepoPath()); errors.Is(none, fs.ErrNotExist) {
		facts.Architecture, facts.Notes = host.Architecture(), []string{"this is no ostree host, so the image alone is judged: --host FACTS judges it for a machine"}
		return facts, change, nil
	} else if facts, err = machine.FactsOf(cmd.Context(), h); err == nil {
		var booted ostree.Deployment
		booted, err = h.Sysroot().Booted()
		change.Running, change.Own = booted.Checksum, *machine.OwnOf(h)
	}
	change.on, change.Line, change.Rebuilt = &facts.Facts, facts.Arguments, facts.Rebuilt
	return facts, change, err
}

// importForCheck imports an image, and returns its commit and what the import has noted. One that no machine can boot is
// refused, as for a machine.
func importForCheck(cmd *cobra.Command, flags *imageFlags, progress *progressFlags, repoPath, name string) (commit ostree.Checksum, notes []string, err error) {
	repo, view, err := openRepo(flags.root, repoPath)
	if err != nil {
		return commit, nil, err
	}
	defer view.Close()
	image, err := flags.open(cmd, name)
	if err != nil {
		return commit, nil, err
	}
	defer image.Close()
	result, err := importShown(cmd, image, repo, progress)
	if err != nil {
		return commit, nil, err
	}
	commit, err = ostree.ParseChecksum(result.Commit)
	if err != nil {
		return commit, nil, err
	}
	if _, not := hostimages.CheckBoots(repo, commit); not != nil {
		err = fault.New(fault.BadInput, "%w", not)
	}
	return commit, result.Notes, err
}

// broughtBy returns the kernel arguments that an image in a repository brings.
func broughtBy(path string, commit ostree.Checksum, architecture string) (kargs.Line, error) {
	repo, err := ostree.OpenRepo(path)
	if err != nil {
		return nil, err
	}
	brings, err := osimage.ReadKargs(repo, commit, architecture)
	return append(kargs.Line{}, brings.Line...), errors.Join(err, brings.Err())
}
