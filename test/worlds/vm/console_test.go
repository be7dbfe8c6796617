package vm

import (
	"errors"
	"strings"
	"testing"
)

func TestConsole(t *testing.T) {
	for _, c := range []struct {
		name, in string
		lines    []string
		want     Reason
	}{
		{"colours", "\x1b[0;32m  OK  \x1b[0m] a\r\nb\n", []string{"  OK  ] a", "b"}, ""},
		{"cleared screen", "\x1bc\x1b[?7l\x1b[2Ja\n", []string{"a"}, ""},
		{"no line feed at the end", "a\nPress Enter:", []string{"a", "Press Enter:"}, ""},
		{"panic", "[ 1.0] Kernel panic - not syncing: VFS\nb\n", []string{"[ 1.0] Kernel panic - not syncing: VFS"}, Panicked},
		{"coloured emergency", "Reached target \x1b[0;1;39memergency.target\x1b[0m\n", []string{"Reached target emergency.target"}, Emergency},
		{"stop", "go on\nstop here\nb\n", []string{"go on", "stop here"}, Stopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []string
			con := &console{
				onLine:   func(line string) { seen = append(seen, line) },
				stopWhen: func(line string) bool { return strings.HasPrefix(line, "stop") },
			}
			var got Reason
			// One byte at a time: lines come in pieces.
			for i := range c.in {
				if _, err := con.Write([]byte(c.in[i : i+1])); err != nil {
					o, _ := errors.AsType[endError](err)
					got = o.reason
					break
				}
			}
			if got == "" {
				con.end()
			}
			if got != c.want || strings.Join(seen, "|") != strings.Join(c.lines, "|") {
				t.Errorf("lines %q, end %q, want %q, %q", seen, got, c.lines, c.want)
			}
		})
	}
}

func TestParseReport(t *testing.T) {
	// "eyJwaGFzZSI6ImRvbmUifQ==" is {"phase":"done"}.
	const good = `{"version":"B.2","unit":{"ActiveState":"failed","ExecMainStatus":"65"},"failedUnits":"a\\x2db.service","status":"eyJwaGFzZSI6ImRvbmUifQ=="}`
	r, err := parseReport(good)
	if err != nil || r.Version != "B.2" || r.Unit.ExecMainStatus != 65 || r.Status.Phase != "done" || r.FailedUnits != `a\x2db.service` {
		t.Errorf("report %+v, %v", r, err)
	}
	if r, err := parseReport(`{"version":"A.1","status":""}`); err != nil || r.Status.Phase != "" {
		t.Errorf("without pivot: %+v, %v", r, err)
	}
	for _, bad := range []string{"", `{"version":"A.1"`, `{"status":"bm90IEpTT04="}`} {
		if _, err := parseReport(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestParseEntry(t *testing.T) {
	e, err := parseEntry("x.conf", "title Guest A.1\nversion 2\noptions root=LABEL=root rw\nlinux /ostree/k\ninitrd /ostree/i\n")
	want := BootEntry{File: "x.conf", Title: "Guest A.1", Version: 2, Options: "root=LABEL=root rw", linux: "/ostree/k", initrd: "/ostree/i"}
	if err != nil || e != want {
		t.Errorf("entry %+v, %v, want %+v", e, err, want)
	}
	for _, bad := range []string{"", "version x\nlinux /k\ninitrd /i\n", "version 1\nlinux /k\n"} {
		if _, err := parseEntry("x.conf", bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
