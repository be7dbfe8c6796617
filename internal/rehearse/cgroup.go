package rehearse

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

// legacyCgroups warns if the arguments ask for version 1 of control groups, and the new systemd's version does not
// support that as before (NEWS of 256 to 258).
func legacyCgroups(line kargs.Line) subject {
	if !wantsLegacy(line) {
		return subject{judge: nothing}
	}
	return subject{programs: [][]string{{systemd, "--version"}}, judge: func(_ context.Context, ended []ending) ([]verdict.Finding, error) {
		version := systemdVersion(ended[0])
		what := withoutLegacy(version, slices.Contains(line, force))
		if what == "" {
			return nil, nil
		}
		return []verdict.Finding{{Name: "cgroups", Weight: verdict.Warned, Text: fmt.Sprintf("the kernel arguments ask for version 1 of control groups (%s=0), and systemd %d of the new system %s", unified, version, what)}}, nil
	}}
}

// withoutLegacy returns what a version of systemd does if it is asked for version 1; "" if it has that.
func withoutLegacy(version int, forced bool) string {
	switch {
	case version >= 258:
		return "does not have it: the system starts with version 2"
	case version < 256, forced:
		return ""
	case version == 257:
		return "waits 30 s at each start, and then starts with version 2, unless " + force + " is there, too"
	}
	return "stops at its start unless " + force + " is there, too"
}

const (
	unified = "systemd.unified_cgroup_hierarchy"
	force   = "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"
)

// wantsLegacy reports whether a line asks for version 1, alone or beside version 2. The last value counts, as
// systemd reads it.
func wantsLegacy(line kargs.Line) bool {
	values := line.Values(unified)
	return len(values) > 0 && slices.Contains([]string{"0", "no", "n", "false", "f", "off"}, strings.ToLower(values[len(values)-1]))
}

// systemdVersion returns the version in "systemd 257 (257.9-1)", or 0.
func systemdVersion(e ending) int {
	if fields := strings.Fields(e.Said); e.Status == 0 && len(fields) > 1 && fields[0] == "systemd" {
		number, _, _ := strings.Cut(fields[1], "~")
		version, _ := strconv.Atoi(number)
		return version
	}
	return 0
}
