package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/test/suites/booted"
	"machine-pivot/test/worlds/fleetlock"
)

// slotUnit is the unit that releases the slot.
const slotUnit = "pivot-slot.service"

// fleetLock sets up a machine in a fleet with one slot.
func fleetLock(m *machine) {
	server := fleetlock.Start(m.t, 1)
	m.names["https://fleetlock.example"] = server.URL
	m.names["/usr/bin/pivot"] = booted.ProgramsDir + "/pivot"
	wants := func(when string, holders int, asked string) {
		m.t.Helper()
		if held, got := len(server.Holders("default")), server.Asked(); held != holders || got != asked {
			m.t.Errorf("%s: %d machines have the slot, asked was %q, want %d and %q", when, held, got, holders, asked)
		}
	}
	m.notes["the server is away at first"] = func() {
		verifyUnit(m.t, filepath.Join(m.Root, "etc/systemd/system/os-update.service"))
		m.write("etc/ssl/certs/ca-certificates.crt", string(server.CA()))
		unit, err := os.ReadFile(filepath.Join(root, "systemd-units", slotUnit))
		m.must(err)
		m.write("etc/systemd/system/"+slotUnit, string(unit))
		m.mustRun("mkdir -p /etc/systemd/system/multi-user.target.wants && ln -s /etc/systemd/system/" + slotUnit + " /etc/systemd/system/multi-user.target.wants/")
		server.Down(1)
	}
	m.notes["this machine has the slot and runs the new system"] = func() {
		wants("after the reboot", 1, "pre-reboot pre-reboot")
		m.mustRun("systemctl start " + slotUnit)
		wants("when the new system is proven", 0, "steady-state")
		m.mustRun("systemctl start os-update.service")
		wants("with nothing to change", 0, "")

		restore := m.failingOstree()
		m.mustRun(`sed -i "s|os:stable|os:4.14|" /etc/systemd/system/os-update.service`)
		if out, status := m.run("systemctl start os-update.service"); status == 0 {
			m.t.Errorf("a commit that fails: exit status 0\n%s", out)
		}
		wants("after a commit that failed", 0, "pre-reboot steady-state")
		restore()
	}
}

// failingOstree makes all deployments fail until restore is called.
func (m *machine) failingOstree() (restore func()) {
	m.t.Helper()
	const script = "#!/bin/sh\n[ \"$1 $2\" != \"admin deploy\" ] || { echo no >&2; exit 1; }\nexec /usr/bin/ostree \"$@\"\n"
	path := filepath.Join(m.Programs, "ostree")
	m.must(os.WriteFile(path, []byte(script), 0o755))
	return func() { m.must(os.Remove(path)) }
}

// verifyUnit checks a unit with systemd-analyze. The programs in it exist only on the machine, so
// they are replaced.
func verifyUnit(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^(Exec\w+)=`+booted.ProgramsDir+`/pivot `).ReplaceAllString(string(data), "$1=/bin/true ")
	copied := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput(); err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("%s: %v\n%s", path, err, out)
	}
}
