package script

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Transcript runs each command of a transcript, a line that begins with "$ ", and holds
// what it prints and its exit status against the lines that follow. The commands run in
// dir, and see vars in their environment; values of those are shown by their names.
// UPDATE_GOLDEN=1 writes into the transcript what happens.
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

// WrongUses is Transcript for commands that are used wrongly. Whatever they say, each
// ends with an exit status that says so, names what is wrong, and what to do where the
// command line is at fault; nobody has to know what the program is made with.
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
