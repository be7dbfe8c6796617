package rehearse

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/kargs"
)

// legacyCgroups returns a warning if the arguments ask for version 1 of control groups, which the new systemd, by what it
// says about its version, does not have as before (NEWS of 256 to 258); otherwise "".
func legacyCgroups(line kargs.Line, asked ending) string {
	version := systemdVersion(asked)
	if version < 256 || !wantsLegacy(line) {
		return ""
	}
	var what string
	switch {
	case version >= 258:
		what = "does not have it: the system starts with version 2"
	case slices.Contains(line, force):
		return ""
	case version == 257:
		what = "waits 30 s at each start, and then starts with version 2, unless " + force + " is there, too"
	default:
		what = "stops at its start unless " + force + " is there, too"
	}
	return fmt.Sprintf("the kernel arguments ask for version 1 of control groups (%s=0), and systemd %d of the new system %s", unified, version, what)
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
