package script

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Transcript runs each command of a transcript, that is each line that begins with "$ ", and
// compares its output with the lines that follow. judge checks the output and the exit status. The
// commands run in dir with vars in their environment; in the output the values of vars are replaced
// by their names. UPDATE_GOLDEN=1 updates the transcript.
func Transcript(t *testing.T, path, dir string, vars map[string]string, judge func(command, output string, status int)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	env, names := os.Environ(), []string{}
	for name, value := range vars {
		env, names = append(env, name+"="+value), append(names, value, "$"+name)
	}
	hide := strings.NewReplacer(names...)
	var got strings.Builder
	for line := range strings.Lines(string(text)) {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !isCommand {
			if strings.HasPrefix(line, "#") {
				got.WriteString("\n" + line)
			}
			continue
		}
		cmd := exec.Command("sh", "-c", "exec 2>&1; "+command)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.Output()
		status := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		output := hide.Replace(string(out))
		judge(command, output, status)
		got.WriteString("\n" + line + output)
	}
	now := strings.TrimPrefix(got.String(), "\n")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now != string(text) {
		t.Errorf("%s is not what happens; that is\n%s", path, now)
	}
}

// WrongUses is Transcript for wrong uses of commands. Each must fail with a specific exit status
// and an error message, and with a hint if the command line is wrong. Messages must not expose
// implementation details. least is the minimum number of commands.
func WrongUses(t *testing.T, path, dir string, vars map[string]string, least int) {
	t.Helper()
	n := 0
	Transcript(t, path, dir, vars, func(command, output string, status int) {
		n++
		if status == 0 || !strings.Contains(output, "error: ") {
			t.Errorf("%s: ends with %d and says %q", command, status, output)
		}
		if status == 64 && !strings.Contains(output, "hint: ") {
			t.Errorf("%s: does not say what to do: %s", command, output)
		}
		if status == 1 {
			t.Errorf("%s: is a failure that nobody foresaw: %s", command, output)
		}
		for _, inner := range []string{"arg(s)", "strconv", "goroutine", "%!", "panic", "pflag"} {
			if strings.Contains(output, inner) {
				t.Errorf("%s: says %q: %s", command, inner, output)
			}
		}
	})
	if n < least {
		t.Errorf("%d commands, want %d", n, least)
	}
}
