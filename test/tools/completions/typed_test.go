package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/test/tools/need"
)

// shells are the interactive shells, with the settings that load the completions. Each has the same prompt.
var shells = []struct {
	name     string
	argv     []string
	path     string // of the settings, below HOME
	settings string
}{
	{"bash", []string{"bash", "--rcfile", "bashrc", "-i"}, "bashrc", `
. /usr/share/bash-completion/bash_completion
. $COMPLETIONS/bash/pivot
. $COMPLETIONS/bash/pivotctl
PS1='ready> '
`},
	{"zsh", []string{"zsh", "-i"}, ".zshrc", `
fpath=($COMPLETIONS/zsh $fpath)
autoload -Uz compinit
compinit -D
PROMPT='ready> '
`},
	{"fish", []string{"fish", "-i"}, ".config/fish/config.fish", `
set fish_complete_path $COMPLETIONS/fish
set -g fish_autosuggestion_enabled 0
function fish_prompt; echo -n 'ready> '; end
`},
}

// typed requires that each shell completes the begin of a value that a program knows.
func typed(t *testing.T, bin, completions string) {
	need.File(t, "/usr/share/bash-completion/bash_completion")
	for _, shell := range shells {
		t.Run(shell.name, func(t *testing.T) {
			need.Program(t, shell.name)
			home := t.TempDir()
			settings := filepath.Join(home, shell.path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(settings), 0o755), os.WriteFile(settings, []byte(shell.settings), 0o644)); err != nil {
				t.Fatal(err)
			}
			s := interactive(t, home, shell.argv, "HOME="+home, "PATH="+bin+":"+os.Getenv("PATH"), "COMPLETIONS="+completions, "TERM=xterm", "LC_ALL=C.UTF-8")
			s.completes("pivot rebase --engine rp", "m-ostree", "(pivot)(rebase)(--engine)(rpm-ostree)")
			s.completes("pivotctl config render --role wo", "rker", "(pivotctl)(config)(render)(--role)(worker)")
		})
	}
}

// session is a shell on a terminal.
type session struct {
	t        *testing.T
	terminal *os.File
	unread   []byte // what the shell has printed, after what was waited for
}

// interactive starts a shell on a terminal that is as wide as no line. It ends with the test.
func interactive(t *testing.T, dir string, argv []string, env ...string) *session {
	t.Helper()
	terminal, line, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // for a shell that never answers
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, line
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	if err := errors.Join(err, line.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = terminal.Close()
	})
	return &session{t: t, terminal: terminal}
}

// openTerminal returns a new terminal, and the line to it, which is the terminal of a process.
func openTerminal() (terminal, line *os.File, err error) {
	terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(terminal.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 200}))
	}
	if err == nil {
		line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return terminal, line, err
}

// completes types the begin of a command and the tab key, and requires what the tab adds. Then it has the shell print
// the words of the line: ^A moves to the begin of the line. Nothing is typed before the answer to what was typed before
// is there. A shell may drop keys that come before its prompt, and zsh does not complete while more keys wait.
func (s *session) completes(begin, added, words string) {
	s.t.Helper()
	s.wait("ready> ")
	s.typeKeys(begin + "\t")
	s.wait(added)
	s.typeKeys("\001printf '(%s)' \n")
	s.wait(words)
}

func (s *session) typeKeys(keys string) {
	s.t.Helper()
	if _, err := s.terminal.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// wait reads until the shell has printed a text.
func (s *session) wait(text string) {
	s.t.Helper()
	buffer := make([]byte, 4096)
	for {
		if _, after, ok := bytes.Cut(s.unread, []byte(text)); ok {
			s.unread = after
			return
		}
		n, err := s.terminal.Read(buffer)
		s.unread = append(s.unread, buffer[:n]...)
		if err != nil {
			s.t.Fatalf("the shell ended (%v) without %q: %q", err, text, strings.ToValidUTF8(string(s.unread), "?"))
		}
	}
}
