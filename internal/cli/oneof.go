package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// OneOf is a flag with a fixed set of values. Any other value is a usage error.
type OneOf struct {
	Value   *string
	Allowed []string // at least one
}

// Add adds the flag to a command, with completion of its values.
func (f OneOf) Add(cmd *cobra.Command, name, usage string) { f.AddP(cmd, name, "", usage) }

// AddP is like Add, with a shorthand.
func (f OneOf) AddP(cmd *cobra.Command, name, shorthand, usage string) {
	cmd.Flags().VarP(f, name, shorthand, usage)
	Suggest(cmd, name, f.Allowed...)
}

// String implements pflag.Value.
func (f OneOf) String() string {
	if f.Value == nil {
		return ""
	}
	return *f.Value
}

// Type implements pflag.Value. Help shows it in place of a value.
func (f OneOf) Type() string { return strings.Join(f.Allowed, "|") }

// Set implements pflag.Value.
func (f OneOf) Set(value string) error {
	if !slices.Contains(f.Allowed, value) {
		last := len(f.Allowed) - 1
		if last == 0 {
			return fmt.Errorf("it is %s", f.Allowed[0])
		}
		return fmt.Errorf("it is %s or %s", strings.Join(f.Allowed[:last], ", "), f.Allowed[last])
	}
	*f.Value = value
	return nil
}
