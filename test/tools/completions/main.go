// Command completions writes the shell completions of the programs into a directory, with the file
// names that the shells expect. The completion scripts call the program for its suggestions, so their
// text depends only on its name. So this can run on the build host even when the programs are for
// another architecture.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "completions:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: completions DIR")
	}
	for _, program := range []string{"pivot", "pivotctl", "pivot-agent"} {
		cmd := &cobra.Command{Use: program}
		for name, generate := range map[string]func(string) error{
			"bash/" + program:           func(file string) error { return cmd.GenBashCompletionFileV2(file, true) },
			"zsh/_" + program:           cmd.GenZshCompletionFile,
			"fish/" + program + ".fish": func(file string) error { return cmd.GenFishCompletionFile(file, true) },
		} {
			file := filepath.Join(args[0], name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := generate(file); err != nil {
				return err
			}
		}
	}
	return nil
}
