package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/printable"
)

// Output is the -o flag: text for people, JSON for programs.
type Output struct{ format string }

// Add adds the flag to a command.
func (o *Output) Add(cmd *cobra.Command) {
	o.format = "text"
	cmd.Flags().VarP(OneOf{Value: &o.format, Allowed: []string{"text", "json"}}, "output", "o", "text|json")
}

// Write prints value as asked for; text writes the form for people. In both
// nothing of what others wrote reaches a terminal as anything but text.
func (o *Output) Write(w io.Writer, value any, text func(io.Writer)) error {
	if o.format == "text" {
		text(printable.Writer(w))
		return nil
	}
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(printable.JSON(document.Bytes()))
	return err
}

// OneOf is a flag with the values that it can have: another is refused before any
// work is done.
type OneOf struct {
	Value   *string
	Allowed []string
}

// String implements pflag.Value.
func (f OneOf) String() string {
	if f.Value == nil {
		return ""
	}
	return *f.Value
}

// Type implements pflag.Value.
func (OneOf) Type() string { return "string" }

// Set implements pflag.Value.
func (f OneOf) Set(value string) error {
	if !slices.Contains(f.Allowed, value) {
		return fmt.Errorf("it is %s", strings.Join(f.Allowed, " or "))
	}
	*f.Value = value
	return nil
}
