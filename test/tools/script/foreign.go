package script

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
)

// Foreign runs each command and flag of other tools that a program knows. The hint must end with
// the call of the table. A call of the program must be accepted, up to where it would run; of
// another program, a command must be shown by its --help, if that program is installed.
func Foreign(t *testing.T, root *cobra.Command, table []cli.Foreign) {
	if len(table) == 0 {
		t.Fatal("nothing is known")
	}
	for _, f := range table {
		for _, typed := range f.Typed {
			root.SetArgs(strings.Fields(typed))
			_, err := root.ExecuteC()
			if hint := fault.HintOf(err); fault.KindOf(err) != fault.Usage || !strings.HasSuffix(hint, ": "+f.Call) {
				t.Errorf("%s: error %v, hint %q, want the call %q", typed, err, hint, f.Call)
			}
		}
		checkCall(t, root, f.Call)
	}
}

// checkCall requires that a call can be parsed.
func checkCall(t *testing.T, root *cobra.Command, call string) {
	words := strings.Fields(call)
	if words[0] != root.Name() {
		checkHelp(t, words)
		return
	}
	cmd, rest, err := root.Find(words[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil || cmd.Hidden || cmd.HasSubCommands() {
		t.Errorf("%s: cannot be called: %v", call, err)
	}
}

// checkHelp requires that another program has the command of a call.
func checkHelp(t *testing.T, words []string) {
	program, err := exec.LookPath(words[0])
	if err != nil {
		t.Logf("%s is not installed", words[0])
		return
	}
	var command []string
	for _, word := range words[1:] {
		if word == strings.ToUpper(word) || strings.HasPrefix(word, "-") {
			break
		}
		command = append(command, word)
	}
	if out, err := exec.Command(program, append(command, "--help")...).CombinedOutput(); err != nil {
		t.Errorf("%s --help: %v\n%s", strings.Join(words, " "), err, out)
	}
}
