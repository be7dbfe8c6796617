package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/fault"
)

// Foreign is what users of other tools type for something that a call here does. It is a usage
// error with that call as hint.
type Foreign struct {
	// Typed has commands, such as "upgrade", and flags of the commands here, such as
	// "rebase --no-reboot".
	Typed []string
	Why   string // beginning of the hint
	Call  string // end of the hint: a complete call, in which words in upper case stand for arguments
}

// foreignKey is the prefix of an annotation with the hint for a foreign flag.
const foreignKey = "pivot/foreign "

// Teach adds foreign commands, which are hidden, and foreign flags to a program.
func Teach(root *cobra.Command, table []Foreign) {
	for _, f := range table {
		for _, typed := range f.Typed {
			f.teach(root, typed)
		}
	}
}

func (f Foreign) teach(root *cobra.Command, typed string) {
	hint := f.Why + ": " + f.Call
	name, flag, isFlag := strings.Cut(typed, " ")
	if !isFlag {
		root.AddCommand(absent(name, func([]string) string { return hint }))
		return
	}
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			annotate(cmd, foreignKey+flag, hint)
		}
	}
}

// absent returns a hidden command for what users type although the program does not have it. It
// fails with a hint.
func absent(name string, hint func(args []string) string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return fault.New(fault.Usage, "%s has no command %s", cmd.Root().Name(), name).WithHint("%s", hint(args))
		},
	}
}

// helpCommand returns the command help. Unlike cobra's own, it fails for what is no command, and
// for a command of another program or tool, as that command itself does.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND…]", Short: "Help about any command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if at, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, below := range at.Commands() {
					if below.IsAvailableCommand() {
						names = append(names, below.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil || len(rest) > 0 && at.HasSubCommands():
				return unknownCommand(at, rest)
			case at.Hidden && at.RunE != nil:
				return at.RunE(at, rest)
			case len(rest) > 0:
				return fault.New(fault.Usage, "%s has no command %q", at.CommandPath(), rest[0]).WithHint("see %s --help", at.CommandPath())
			}
			at.InitDefaultHelpFlag()
			at.InitDefaultVersionFlag()
			return at.Help()
		},
	}
}

// checkShells makes the command completion fail for what is no shell. Cobra prints its help
// instead, which a shell that reads the script takes for one.
func checkShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = unknownCommand, help
		}
	}
}
