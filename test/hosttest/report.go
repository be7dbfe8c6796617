package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// report is what a machine says of a boot, by the names that report.sh gives; nil if it
// said nothing.
type report map[string]string

func readReport(file string) (report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the machine's report: %w", err)
	}
	var r report
	for line := range strings.Lines(string(text)) {
		name, packed, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := base64.StdEncoding.DecodeString(packed)
		if err != nil {
			return nil, fmt.Errorf("cannot read the machine's report: %q: %w", line, err)
		}
		if r == nil {
			r = report{}
		}
		r[name] = strings.TrimSuffix(string(value), "\n")
	}
	return r, nil
}

// has reports whether the kernel command line has an argument.
func (r report) has(argument string) bool {
	return strings.Contains(" "+r["cmdline"]+" ", " "+argument+" ")
}

// commit is that of the booted deployment.
func (r report) commit() string {
	commit, _, _ := strings.Cut(r["deployment"], ".")
	return commit
}

// phase is the phase that "pivot status" says.
func (r report) phase() string {
	var status struct{ Phase string }
	if err := json.Unmarshal([]byte(r["status"]), &status); err != nil {
		return r["status"] // what it said instead
	}
	return status.Phase
}
