package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"machine-pivot/internal/fault"
)

// Usage makes a wrong number of arguments, or an empty one, a usage error, which says
// what is missing by the name that it has in the command's Use.
func Usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fault.New(fault.Usage, "%s", miscounted(cmd, args))
		}
		for i, arg := range args {
			if arg == "" { // as of a variable that is not set
				return fault.New(fault.Usage, "%s is empty", argumentName(cmd, i))
			}
		}
		return nil
	}
}

// miscounted says what is wrong with the number of arguments.
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

// argumentNames are the arguments of a command as its Use names them: words that begin in
// upper case, but for a flag's value.
func argumentNames(cmd *cobra.Command) (names []string) {
	afterFlag := false
	for _, word := range strings.Fields(cmd.Use)[1:] {
		name := strings.Trim(word, "[]…")
		if !afterFlag && unicode.IsUpper([]rune(name)[0]) {
			names = append(names, name)
		}
		afterFlag = strings.HasPrefix(word, "-")
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

// unknownCommand is the check of a command that only holds others.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fault.New(fault.Usage, "%s has no command %q", cmd.CommandPath(), args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return err.WithHint("did you mean %s? See %s --help", near[0], cmd.CommandPath())
	}
	return err
}

// wrongFlag explains a flag that cannot be used.
func wrongFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + unknown.GetSpecifiedName()
		if in := unknown.GetSpecifiedShortnames(); in != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return fault.New(fault.Usage, "%s has no flag %s", cmd.CommandPath(), name)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		value, _ := pflag.UnquoteUsage(missing.GetFlag())
		return fault.New(fault.Usage, "no value given to --%s: it takes %s", missing.GetFlag().Name, value)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fault.New(fault.Usage, "cannot use --%s=%s: %w", wrong.GetFlag().Name, wrong.GetValue(), wrongValue(wrong))
	}
	return fault.New(fault.Usage, "%w", err)
}

// wrongValue says what a flag's value should be. What Go's parsers say is for those who
// know them.
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

// Wait is a flag for a time that is not less than 0.
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
