package main

import (
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
)

// kargsCommand returns a hidden command that fails with a hint: those who look for rpm-ostree's
// kargs need rebase, and those who look for pivotctl's need that program.
func kargsCommand() *cobra.Command {
	elsewhere := cli.Elsewhere("pivotctl", "for authors and operators", "kargs")[0]
	return &cobra.Command{
		Use: "kargs", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && (args[0] == "diff" || args[0] == "check") {
				return elsewhere.RunE(cmd, args)
			}
			return fault.New(fault.Usage, "pivot has no command kargs").
				WithHint("rebase changes kernel arguments: %s", rebaseInstead(args))
		},
	}
}

// rebaseInstead returns the call of rebase that does what arguments of "rpm-ostree kargs" request.
func rebaseInstead(args []string) string {
	const general = "pivot rebase --append-karg ARG --delete-karg ARG"
	if len(args) == 0 {
		return general
	}
	call := "pivot rebase"
	for _, arg := range args {
		flag, value, _ := strings.Cut(arg, "=")
		switch flag {
		case "--append", "--append-if-missing":
			flag = "--append-karg"
		case "--delete", "--delete-if-present":
			flag = "--delete-karg"
		default:
			value = ""
		}
		if value == "" {
			return general
		}
		call += " " + flag + " '" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return call
}
