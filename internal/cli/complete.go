package cli

import (
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// setArguments has the arguments of commands checked by Use, unless they have their own check. It disables completion
// of file names for commands without an upper-case word in Use.
func setArguments(cmd *cobra.Command) {
	if cmd.Args == nil && !cmd.DisableFlagParsing {
		cmd.Args = checkOf(cmd)
	}
	if cmd.ValidArgsFunction == nil && !strings.ContainsFunc(cmd.Use, unicode.IsUpper) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		setArguments(below)
	}
}

// Suggest completes a flag with the given values instead of file names. Other values are still
// allowed.
func Suggest(cmd *cobra.Command, flag string, values ...string) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(values) == 1 && strings.HasSuffix(values[0], "=") {
		directive |= cobra.ShellCompDirectiveNoSpace // the user types the rest
	}
	// It fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, directive))
}

// Directories completes flags with the names of directories.
func Directories(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.MarkFlagDirname(flag) // fails only for an unknown flag
	}
}
