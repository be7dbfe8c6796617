package main

import (
	"maps"
	"os"
	"regexp"
	"testing"

	"github.com/spf13/pflag"

	"machine-pivot/internal/cli"
)

// TestDrainFlags compares the flags of a drain, and their defaults, with the table in docs/cluster-drain.md.
func TestDrainFlags(t *testing.T) {
	text, err := os.ReadFile("../../docs/cluster-drain.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([^`]*)` \\|").FindAllSubmatch(text, -1) {
		documented[string(row[1])] = string(row[2])
	}
	flags := map[string]string{}
	nodeCommand(cli.Build{}).Flags().VisitAll(func(f *pflag.Flag) {
		if regexp.MustCompile("drain|single").MatchString(f.Name) {
			flags[f.Name] = f.DefValue
		}
	})
	if !maps.Equal(documented, flags) {
		t.Errorf("docs/cluster-drain.md has %v, the program %v", documented, flags)
	}
}
