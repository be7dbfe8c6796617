package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// report is a machine's report of a boot, with the keys of report.sh; nil if there was none.
type report map[string]string

func parseReport(lines []string) (report, error) {
	var r report
	for _, line := range lines {
		if line == "" {
			continue
		}
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

// commit returns the commit of the booted deployment.
func (r report) commit() string {
	commit, _, _ := strings.Cut(r["deployment"], ".")
	return commit
}

// phase returns the phase in the output of "pivot status".
func (r report) phase() string {
	var status struct{ Phase string }
	if err := json.Unmarshal([]byte(r["status"]), &status); err != nil {
		return r["status"] // not JSON
	}
	return status.Phase
}
