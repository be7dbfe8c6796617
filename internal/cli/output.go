package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/printable"
)

// Output is the -o flag: text for people, or JSON or YAML for programs.
type Output struct {
	format string
	kind   api.Kind
}

// Add adds the flag to a command that writes documents of the given kind.
func (o *Output) Add(cmd *cobra.Command, kind api.Kind) {
	o.format, o.kind = "text", kind
	OneOf{Value: &o.format, Allowed: []string{"text", "json", "yaml"}}.AddP(cmd, "output", "o", "output format")
	AddJSON(cmd, &o.format)
}

// AddJSON adds the flag --json, as other tools have it, which sets an output format to "json". Of
// this flag and the one for the format, the last on the command line wins.
func AddJSON(cmd *cobra.Command, format *string) {
	flag := cmd.Flags().VarPF(jsonFlag{format}, "json", "", "the same as --output=json")
	flag.NoOptDefVal, flag.DefValue = "true", ""
}

// jsonFlag is the value of the flag of AddJSON.
type jsonFlag struct{ format *string }

// String implements pflag.Value.
func (jsonFlag) String() string { return "" }

// Type implements pflag.Value.
func (jsonFlag) Type() string { return "bool" }

// Set implements pflag.Value.
func (f jsonFlag) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err == nil && on {
		*f.format = "json"
	}
	return err
}

// IsText reports whether the output is for people.
func (o *Output) IsText() bool { return o.format == "text" }

// As returns the flag for documents of another kind.
func (o *Output) As(kind api.Kind) *Output { return &Output{format: o.format, kind: kind} }

// Write writes value in the requested format; text writes the one for people. In every format,
// untrusted text is escaped so that it cannot control a terminal.
func (o *Output) Write(w io.Writer, value any, text func(io.Writer)) error {
	if o.format == "text" {
		text(printable.Writer(w))
		return nil
	}
	document, err := api.MarshalIndent(o.kind, value)
	if err != nil {
		return err
	}
	if o.format == "yaml" {
		document, err = toYAML(document)
	} else {
		document = printable.JSON(document)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(document)
	return err
}
