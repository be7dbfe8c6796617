package rehearse

import (
	"context"
	"strings"

	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

const (
	sshd   = "/usr/sbin/sshd"
	sshDir = "/etc/ssh"
)

// logins asks the new sshd whether it starts with the machine's own settings and host keys. A newer one may refuse an option,
// or the mode of a key. What the running system's sshd refuses, too, is no difference. Nothing is asked where the machine has
// no host keys yet.
func (s Stage) logins(c Change) subject {
	sub := subject{files: c.Own.below(sshDir), judge: nothing}
	if len(c.Own.named(sshDir+"/ssh_host_*_key")) == 0 {
		return sub
	}
	sub.programs = [][]string{{sshd, "-t"}}
	sub.judge = func(ctx context.Context, ended []ending) ([]verdict.Finding, error) {
		what, words := ended[0].sshdRefuses()
		if what == "" {
			return nil, nil
		}
		control, err := s.run(ctx, c.Running, sub.files, sub.programs...)
		if err != nil {
			return nil, err
		}
		if before, _ := control[0].sshdRefuses(); before == what || control[0].Missing {
			return nil, nil
		}
		return []verdict.Finding{{Name: "sshd", Weight: verdict.Warned, Text: "the new system's sshd " + what + ": " + words}}, nil
	}
	return sub
}

// sshdRefuses returns what sshd does not do, and why; "" if it starts, with all keys.
func (e ending) sshdRefuses() (what, words string) {
	if e.Missing || e.Late || e.Loud || e.Errno != 0 || e.Signal != 0 {
		return "", ""
	}
	var last string
	for line := range strings.Lines(e.Said) {
		line = printable.Line(strings.Trim(strings.TrimSpace(line), "@ "))
		switch {
		case line == "":
		case strings.HasPrefix(line, "Permissions ") && strings.HasSuffix(line, " are too open."):
			what, words = "does not use a host key of this machine", line
		default:
			last = line
		}
	}
	if e.Status != 0 {
		what = "does not start with this machine's settings and host keys, so nobody can log in"
		if words == "" {
			words = last
		}
	}
	return what, words
}
