package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
)

// checked is the output of "image check".
type checked struct {
	OK       bool              `json:"ok"`
	Image    string            `json:"image"`
	Commit   string            `json:"commit"`
	Findings []verdict.Finding `json:"findings"`
}

func imageCheckCommand() *cobra.Command {
	var flags imageFlags
	var progress progressFlags
	var repoPath, hostFile string
	var accept []verdict.Name
	cmd := &cobra.Command{
		Use:   "check IMAGE",
		Short: "Say whether a machine can start an image; change no machine",
		Long: "Import an image, as pivot image import does, and say whether this machine can start it, or with --host one that\n" +
			"is elsewhere. Programs of the image are run on this machine's processor, where they can change nothing. Secure Boot is\n" +
			"judged when the image is used. The exit status is 0, or 65 with all reasons against the image.",
		Example: "  pivot image check registry.example/os:4.20\n" +
			"  pivot image check registry.example/os:4.20 --repo /srv/repo --host node7.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			facts, change, err := factsFor(cmd, flags.root, hostFile)
			if err != nil {
				return err
			}
			if flags.architecture == "" {
				flags.architecture = facts.Architecture
			}
			if err := flags.checkArchitecture(); err != nil {
				return err
			}
			progress.quietFlag = flags.quietFlag
			if change.Next, err = importForCheck(cmd, &flags, &progress, repoPath, args[0]); err != nil {
				return err
			}
			stage := rehearse.Stage{Self: "/proc/self/exe", Repo: cmp.Or(repoPath, ostree.OpenSysroot(flags.root).RepoPath())}
			result := checked{Image: args[0], Commit: change.Next.String()}
			result.Findings, err = stage.Judge(cmd.Context(), change, facts.Facts)
			if err != nil {
				return err
			}
			result.Findings = append([]verdict.Finding{}, result.Findings...)
			_, notes, refused := verdict.Settle(result.Findings, accept)
			result.OK = refused == nil
			err = flags.Write(cmd.OutOrStdout(), result, func(w io.Writer) {
				for _, note := range append(facts.Notes, notes...) {
					fmt.Fprintln(w, printable.Line(note))
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
	cmd.Flags().Var(acceptFlag{&accept}, "accept", "do not let the verdict `NAME` refuse the image; repeatable")
	cli.Suggest(cmd, "accept", acceptFlag{}.names()...)
	cli.Directories(cmd, "repo")
	return cmd
}

// factsFor returns the facts in a file, or those of the machine at root, and what is to be judged besides the next system. Of
// another machine, neither its running system nor its own files are known.
func factsFor(cmd *cobra.Command, root, file string) (facts machine.Facts, change rehearse.Change, err error) {
	h := host.New(root)
	if file != "" {
		facts, err = readFacts(cmd, file)
	} else if facts, err = machine.FactsOf(cmd.Context(), h); err == nil {
		var booted ostree.Deployment
		booted, err = h.Sysroot().Booted()
		change.Running, change.Own = booted.Checksum, *machine.OwnOf(h)
	}
	change.Line, change.Rebuilt = facts.Arguments, facts.Rebuilt
	return facts, change, err
}

// importForCheck imports an image, and returns its commit.
func importForCheck(cmd *cobra.Command, flags *imageFlags, progress *progressFlags, repoPath, name string) (commit ostree.Checksum, err error) {
	repo, view, err := openRepo(flags.root, repoPath)
	if err != nil {
		return commit, err
	}
	defer view.Close()
	image, err := flags.open(cmd, name)
	if err != nil {
		return commit, err
	}
	defer image.Close()
	result, err := importShown(cmd, image, repo, progress)
	if err != nil {
		return commit, err
	}
	return ostree.ParseChecksum(result.Commit)
}
