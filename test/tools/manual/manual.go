// Package manual generates the parts of the manual pages that follow from the programs' own definitions: each command
// with its flags and examples. The rest of a page is written by hand. The pages are checked in, and a test compares
// them with the programs. The commands are defined in package main, and a generator in the program would be on each
// machine. docs/dev/dependencies.md has what was tried with cobra's own generator.
package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The lines of a page that enclose the commands.
const (
	begin = ".\\\" The commands are made of the program's definitions: UPDATE_GOLDEN=1 go test -run TestManual ./cmd/...\n"
	end   = ".\\\" The commands end here.\n"
)

// Update returns a page with the current commands of the program.
func Update(page string, root *cobra.Command) (string, error) {
	var b strings.Builder
	for _, cmd := range Commands(root) {
		describe(&b, cmd)
	}
	return replace(page, begin, end, b.String())
}

// replace replaces what stands between two lines of a page.
func replace(page, begin, end, text string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, alsoOK := strings.Cut(rest, end)
	if !ok || !alsoOK {
		return "", fmt.Errorf("the page has no place for what is made: the lines\n%s%s", begin, end)
	}
	return before + begin + text + end + after, nil
}

// Commands returns the commands that do something, sorted by name, except hidden ones and those
// that cobra adds.
func Commands(root *cobra.Command) (commands []*cobra.Command) {
	for _, cmd := range root.Commands() {
		switch {
		case cmd.Hidden, cmd.Name() == "help", cmd.Name() == "completion":
		case cmd.HasSubCommands():
			commands = append(commands, Commands(cmd)...)
		default:
			commands = append(commands, cmd)
		}
	}
	return commands
}

// describe writes a command in mdoc(7).
func describe(b *strings.Builder, cmd *cobra.Command) {
	parents := strings.TrimPrefix(cmd.Parent().CommandPath(), cmd.Root().Name())
	fmt.Fprintf(b, ".Ss %s\\&\n", escaped(strings.TrimSpace(parents+" "+cmd.Use)))
	said := cmd.Long
	if said == "" {
		said = cmd.Short
	}
	for i, text := range strings.Split(said, "\n\n") {
		if i > 0 {
			b.WriteString(".Pp\n")
		}
		paragraph(b, text)
	}
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString(".Bl -tag -width Ds\n")
		flags.VisitAll(func(flag *pflag.Flag) { describeFlag(b, flag) })
		b.WriteString(".El\n")
	}
	b.WriteString(".Pp\nFor example:\n.Bd -literal -offset indent\n")
	for line := range strings.Lines(cmd.Example) {
		b.WriteString(escaped(strings.TrimSpace(line)) + "\n")
	}
	b.WriteString(".Ed\n")
}

func describeFlag(b *strings.Builder, flag *pflag.Flag) {
	if flag.Hidden || flag.Name == "help" {
		return
	}
	value, usage := pflag.UnquoteUsage(flag)
	b.WriteString(".It ")
	if flag.Shorthand != "" {
		fmt.Fprintf(b, "Fl %s , ", flag.Shorthand)
	}
	fmt.Fprintf(b, "Fl \\-%s", escaped(flag.Name))
	switch {
	case value == "":
	case flag.NoOptDefVal != "": // the value is optional
		fmt.Fprintf(b, " Ns Op = Ns Ar %s", escaped(value))
	default:
		fmt.Fprintf(b, " Ar %s", escaped(value))
	}
	b.WriteString("\n")
	switch flag.DefValue {
	case "", "[]", "false", "0s":
	default:
		usage += " (default: " + strings.TrimSuffix(flag.DefValue, "0s") + ")"
	}
	paragraph(b, strings.ToUpper(usage[:1])+usage[1:])
}

// width is the maximum line length that mandoc(1) recommends.
const width = 72

// paragraph writes one or more sentences in short lines. It ends them with a full stop.
func paragraph(b *strings.Builder, said string) {
	line := ""
	for word := range strings.FieldsSeq(strings.TrimSuffix(said, ".") + ".") {
		if line != "" && len(line)+1+len(word) > width {
			b.WriteString(escaped(line) + "\n")
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
		if strings.HasSuffix(word, ".") { // the formatter recognizes the end of a sentence only at the end of a line
			b.WriteString(escaped(line) + "\n")
			line = ""
		}
	}
	if line != "" {
		b.WriteString(escaped(line) + "\n")
	}
}

// escaped escapes the formatter's special characters in a line.
func escaped(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "…", `\[u2026]`, "-", `\-`, "'", `\[aq]`, `"`, `\[dq]`).Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}
