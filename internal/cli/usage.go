package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"machine-pivot/internal/fault"
)

// Usage turns a wrong number of arguments, or an empty argument, into a usage error. A missing
// argument is named as in the command's Use.
func Usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fault.New(fault.Usage, "%s", miscounted(cmd, args))
		}
		for i, arg := range args {
			if arg == "" { // such as from an unset variable
				return fault.New(fault.Usage, "%s is empty", argumentName(cmd, i))
			}
		}
		return nil
	}
}

// miscounted describes a wrong number of arguments.
func miscounted(cmd *cobra.Command, args []string) string {
	names := argumentNames(cmd)
	switch {
	case len(names) == 0:
		return fmt.Sprintf("%s takes no argument, as %q is", cmd.CommandPath(), args[0])
	case len(args) < len(names):
		return "no " + names[len(args)] + " given"
	}
	return fmt.Sprintf("%s takes one %s: %q is too many", cmd.CommandPath(), names[len(names)-1], args[len(names)])
}

// checkOf returns the check of a command's arguments as its Use has them: [NAME] need not be given,
// and NAME… can be given several times.
func checkOf(cmd *cobra.Command) cobra.PositionalArgs {
	words := argumentWords(cmd)
	least := len(slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word[0] == '[' }))
	if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, "…") }) {
		return Usage(cobra.MinimumNArgs(least))
	}
	return Usage(cobra.RangeArgs(least, len(words)))
}

// argumentWords returns the words of a command's Use that stand for arguments: those in upper case,
// except the values of flags.
func argumentWords(cmd *cobra.Command) (words []string) {
	afterFlag := false
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if !afterFlag && unicode.IsUpper([]rune(strings.Trim(word, "["))[0]) {
			words = append(words, word)
		}
		afterFlag = strings.HasPrefix(word, "-")
	}
	return words
}

// argumentNames returns the names of a command's arguments.
func argumentNames(cmd *cobra.Command) []string {
	names := argumentWords(cmd)
	for i, word := range names {
		names[i] = strings.Trim(word, "[]…")
	}
	return names
}

func argumentName(cmd *cobra.Command, i int) string {
	names := argumentNames(cmd)
	if len(names) == 0 {
		return "an argument"
	}
	return names[min(i, len(names)-1)]
}

// unknownCommand is the argument check of a command that only has subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fault.New(fault.Usage, "%s has no command %q", cmd.CommandPath(), args[0])
	var names []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, below.Name())
		}
	}
	if near := nearest(args[0], names); near != "" {
		return err.WithHint("did you mean %s? See %s --help", near, cmd.CommandPath())
	}
	return err.WithHint("see %s --help", cmd.CommandPath())
}

// wrongFlag turns a flag error of pflag into a usage error.
func wrongFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, unknown)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		value, _ := pflag.UnquoteUsage(missing.GetFlag())
		err := fault.New(fault.Usage, "no value given to --%s: it takes %s", missing.GetFlag().Name, value)
		if hint := cmd.Annotations[foreignKey+"--"+missing.GetFlag().Name]; hint != "" { // elsewhere a flag of this name takes none
			return err.WithHint("%s", hint)
		}
		return err
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fault.New(fault.Usage, "cannot use --%s=%s: %w", wrong.GetFlag().Name, wrong.GetValue(), wrongValue(wrong))
	}
	return fault.New(fault.Usage, "%w", err)
}

// unknownFlag returns the error for a flag that a command does not have. A command before it that
// does not exist is the error instead: "pivot stauts -o json".
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	if before := cmd.Flags().Args(); cmd.HasSubCommands() && len(before) > 0 {
		return unknownCommand(cmd, before)
	}
	name := "--" + unknown.GetSpecifiedName()
	if in := unknown.GetSpecifiedShortnames(); in != "" {
		name = "-" + unknown.GetSpecifiedName()
	}
	err := fault.New(fault.Usage, "%s has no flag %s", cmd.CommandPath(), name)
	if hint := cmd.Annotations[foreignKey+name]; hint != "" {
		return err.WithHint("%s", hint)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	if near := nearest(name, names); near != "" && strings.HasPrefix(name, "--") {
		return err.WithHint("did you mean %s? See %s --help", near, cmd.CommandPath())
	}
	return err
}

// wrongValue describes the values of a flag. The errors of Go's parsers would be of little help
// to users.
func wrongValue(wrong *pflag.InvalidValueError) error {
	switch wrong.GetFlag().Value.Type() {
	case "bool":
		return errors.New("it is true or false")
	case "duration":
		return errors.New("it is a time of 0 or more, as 90s or 20m")
	case "int":
		return errors.New("it is a number")
	}
	return wrong.Unwrap()
}

// Wait is a flag for a duration that is not negative.
type Wait struct{ For *time.Duration }

// String implements pflag.Value.
func (w Wait) String() string {
	if w.For == nil {
		return ""
	}
	return w.For.String()
}

// Type implements pflag.Value.
func (Wait) Type() string { return "duration" }

// Set implements pflag.Value.
func (w Wait) Set(text string) error {
	wait, err := time.ParseDuration(text)
	if err == nil && wait < 0 {
		err = errors.New("it is less than 0")
	}
	if err == nil {
		*w.For = wait
	}
	return err
}
