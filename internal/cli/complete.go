package cli

import (
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// completeArguments keeps the shells from offering files where a command takes no
// argument: its Use names none.
func completeArguments(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !strings.ContainsFunc(cmd.Use, unicode.IsUpper) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		completeArguments(below)
	}
}

// Suggest has the shells offer values for a flag, and no files; others are allowed too.
func Suggest(cmd *cobra.Command, flag string, values ...string) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(values) == 1 && strings.HasSuffix(values[0], "=") {
		directive |= cobra.ShellCompDirectiveNoSpace // what follows is the user's
	}
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, directive))
}

// Directories has the shells offer directories for flags.
func Directories(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.MarkFlagDirname(flag) // as above
	}
}
