package ignition_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/test/suites/booted"
	realignition "machine-pivot/test/suites/ignition"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

func TestMain(m *testing.M) {
	if os.Getenv(booted.Env) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "cannot enter the machine:", booted.Shell())
	os.Exit(125)
}

// settle prepares a machine before Ignition runs: the state of its image, with its users.
const settle = `set -e
mkdir -p /var/opt /var/home/core /etc/systemd/system/sysinit.target.wants
ln -s var/opt /opt; ln -s var/home /home
chown 1000:1001 /var/home/core; chmod 700 /var/home/core
printf 'root:x:0:0::/root:/bin/sh\ncore:x:1000:1001::/home/core:/bin/sh\napp:x:55:56::/:/bin/sh\n' >/etc/passwd
printf 'root:x:0:\ncore:x:1001:\napp:x:56:\n' >/etc/group
printf 'root:*:1::::::\ncore:*:1::::::\n' >/etc/shadow; chmod 600 /etc/shadow
install -d -m 700 -o 7 -g 8 /etc/service /var/lib/service /var/lib/owned /var/lib/moded
touch /etc/systemd/system/pivot-project.service
ln -s /etc/systemd/system/pivot-project.service /etc/systemd/system/sysinit.target.wants/
`

// provisioned returns a machine that the real Ignition has provisioned from a MachineConfig, after
// the presets of its first system start, which enable units for Ignition.
func provisioned(t *testing.T, programs string) *booted.Machine {
	t.Helper()
	m := booted.New(t.TempDir(), hostdir.New(t).Physical(), programs)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	run(t, m, settle, 0)
	worker := rendered(t, "testdata/whole")
	text, err := json.Marshal(worker)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"config.ign": config(t, worker, "3.3.0"), "mc.json": text} {
		if err := os.WriteFile(filepath.Join(m.Home(), file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, m, realignition.Script("config.ign", "/"), 0)
	run(t, m, "SYSTEMD_OFFLINE=1 systemctl preset enabled.service disabled.service", 0)
	return m
}

// run runs a command on a machine. It must have this exit status.
func run(t *testing.T, m *booted.Machine, command string, status int) string {
	t.Helper()
	out, got, err := m.Run(command)
	if err != nil || got != status {
		t.Fatalf("%s: %v, status %d, want %d:\n%s", command, err, got, status, out)
	}
	return out
}

// TestHoldsIgnition (P54, P55, P57, P58): pivot verify accepts what the real Ignition writes for a
// MachineConfig.
func TestHoldsIgnition(t *testing.T) {
	need.Ignition(t)
	programs := script.Programs(t)
	t.Run("applied", func(t *testing.T) { applyHolds(t, provisioned(t, programs)) })
	t.Run("encapsulated", func(t *testing.T) { firstBootHolds(t, provisioned(t, programs)) })
}

// applyHolds applies the MachineConfig after a first boot without the encapsulated one. There is
// nothing to do, and verify then names each later change, even of only an owner or a mode.
func applyHolds(t *testing.T, m *booted.Machine) {
	run(t, m, "pivot firstboot --no-reboot && pivot verify", 0)
	if out := run(t, m, "pivot apply --unchanged-exit-77 mc.json", 77); !strings.Contains(out, "nothing to do") {
		t.Errorf("applied after Ignition it says\n%s", out)
	}
	if out := run(t, m, "pivot verify", 0); out != "" {
		t.Errorf("what Ignition wrote is not what was asked for:\n%s", out)
	}
	var commands, want []string
	for command, named := range changes {
		commands, want = append(commands, command), append(want, named...)
	}
	run(t, m, "set -e; cd /etc/systemd/system\n"+strings.Join(commands, "\n"), 0)
	got := strings.Split(strings.TrimSpace(run(t, m, "pivot verify", 65)), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("verify names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// firstBootHolds runs a first boot with the whole MachineConfig, as Ignition has applied it. It
// neither deploys nor reboots, and from then on verify checks against this MachineConfig.
func firstBootHolds(t *testing.T, m *booted.Machine) {
	run(t, m, "cp mc.json "+machineconfig.EncapsulatedPath, 0)
	if out := run(t, m, "pivot firstboot", 0); !strings.Contains(out, "the machine is what was asked for") || !strings.Contains(out, "first boot closed") {
		t.Errorf("the first boot says\n%s", out)
	}
	run(t, m, "pivot verify", 0)
	if out := run(t, m, "chgrp 9 /etc/whole/by-number; pivot verify", 65); out != "file /etc/whole/by-number: differs\n" {
		t.Errorf("verify names %s", out)
	}
}

// changes maps commands that change one thing that Ignition wrote to the lines of verify about it.
var changes = map[string][]string{
	"chgrp 0 /etc/whole":                      {"directory /etc/whole: differs"},
	"chown 0 /etc/whole/empty":                {"directory /etc/whole/empty: differs"},
	"rmdir /etc/default-directory":            {"directory /etc/default-directory: missing"},
	"chmod 755 /var/lib/whole":                {"directory /var/lib/whole: differs"},
	"chgrp 9 /etc/whole/by-number":            {"file /etc/whole/by-number: differs"},
	"chown 0 /etc/whole/by-name":              {"file /etc/whole/by-name: differs"},
	"chmod 700 /etc/whole/zipped":             {"file /etc/whole/zipped: differs"},
	"echo >>/etc/whole/nothing":               {"file /etc/whole/nothing: differs"},
	"chmod 755 /etc/service":                  {"directory /etc/service: differs"},
	"chown 0 /var/lib/service":                {"directory /var/lib/service: differs"},
	"chgrp 0 /var/lib/moded":                  {"directory /var/lib/moded: differs"},
	"rm /etc/default":                         {"file /etc/default: missing"},
	"rm /etc/made/for/it":                     {"file /etc/made/for/it: missing"},
	"chown 0 /var/lib/whole/file":             {"file /var/lib/whole/file: differs"},
	"echo >>/opt/bin/tool":                    {"file /var/opt/bin/tool: differs"},
	"ln -sfn by-number /etc/whole/link":       {"link /etc/whole/link: differs"},
	"chown -h 7 /etc/whole/owned-link":        {"link /etc/whole/owned-link: differs"},
	"rm /etc/absolute; touch /etc/absolute":   {"link /etc/absolute: differs"},
	"sed -i 's/hash/other/' /etc/shadow":      {"password of core: differs"},
	"chmod 644 ~core/.ssh/auth*/ignition":     {"file /var/home/core/.ssh/authorized_keys.d/ignition: differs"},
	"chgrp 0 ~core/.ssh":                      {"directory /var/home/core/.ssh: differs"},
	"echo >>enabled.service":                  {"file /etc/systemd/system/enabled.service: differs"},
	"chmod 600 enabled.service.d/10-x.conf":   {"file /etc/systemd/system/enabled.service.d/10-x.conf: differs"},
	"rm of-the-image.service.d/20-y.conf":     {"file /etc/systemd/system/of-the-image.service.d/20-y.conf: missing"},
	"rm masked.service":                       {"link /etc/systemd/system/masked.service: missing"},
	"rm other-name.service":                   {"link /etc/systemd/system/other-name.service: missing"},
	"rm */enabled.service":                    {"link /etc/systemd/system/multi-user.target.wants/enabled.service: missing", "link /etc/systemd/system/sysinit.target.requires/enabled.service: missing"},
	"ln -s ../disabled.service multi*.wants/": {"entry /etc/systemd/system/multi-user.target.wants/disabled.service: still there"},
}
