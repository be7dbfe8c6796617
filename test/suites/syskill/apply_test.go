package syskill_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/suites/syskill"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/ostreetree"
)

// The MachineConfigs of the killed machines: all start with firstConfig. imageConfig selects an
// image and changes entries of every kind; liveConfig needs no reboot.
const (
	firstConfig = `{"metadata":{"name":"first"},"spec":{"kernelArguments":["first=1"],"config":{"ignition":{"version":"3.4.0"},
"storage":{"files":[{"path":"/etc/app.conf","mode":420,"contents":{"source":"data:,first"}},{"path":"/etc/app.gone","contents":{"source":"data:,first"}},
 {"path":"/etc/default","contents":{"source":"data:,first"}},{"path":"/var/lib/own","mode":384,"contents":{"source":"data:,first"}}],
 "links":[{"path":"/etc/app.link","target":"app.conf"}]},
"systemd":{"units":[{"name":"app.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]},
"passwd":{"users":[{"name":"core","passwordHash":"$6$first","sshAuthorizedKeys":["first"]}]}}}}`
	imageConfig = `{"metadata":{"name":"second"},"spec":{"osImageURL":%q,"kernelArguments":["second=1"],"config":{"ignition":{"version":"3.4.0"},
"storage":{"files":[{"path":"/etc/app.conf","mode":384,"contents":{"source":"data:,second"}},{"path":"/etc/app/made","contents":{"source":"data:,second"}},
 {"path":"/var/lib/own","mode":384,"contents":{"source":"data:,second"}},{"path":"/opt/tool","mode":493,"contents":{"source":"data:,second"}}],
 "links":[{"path":"/etc/app.link","target":"app/made"}]},
"systemd":{"units":[{"name":"only.service","enabled":true},{"name":"off.service","enabled":false},{"name":"masked.service","mask":true}]},
"passwd":{"users":[{"name":"core","passwordHash":"$6$second","sshAuthorizedKeys":["second"]}]}}}}`
	liveConfig = `{"metadata":{"name":"live"},"spec":{"kernelArguments":["first=1"],"config":{"ignition":{"version":"3.4.0"},
"storage":{"files":[{"path":"/etc/app.conf","mode":384,"contents":{"source":"data:,live"}},{"path":"/etc/app/made","contents":{"source":"data:,live"}},
 {"path":"/var/lib/own","mode":384,"contents":{"source":"data:,first"}}],
 "links":[{"path":"/etc/app.link","target":"app/made"}]},
"systemd":{"units":[{"name":"app.service","enabled":false,"contents":"[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n"}]},
"passwd":{"users":[{"name":"core","passwordHash":"$6$first","sshAuthorizedKeys":["first"]}]}}}}`
	liveRules = `
files:
- {path: /etc/app.conf, actions: [{type: Reload, reload: {serviceName: app.service}}]}
- {path: /etc/app.gone, actions: [{type: None}]}
- {path: /etc/app.link, actions: [{type: None}]}
- {path: /etc/app, actions: [{type: None}]}
- {path: /etc/default, actions: [{type: None}]}
units:
- {name: app.service, actions: [{type: Restart, restart: {serviceName: app.service}}]}
`
	// systemctl is a stand-in: on reload the service reads its configuration, and on daemon-reload
	// systemd reads the unit. Both are forgotten with the boot.
	systemctl = `#!/bin/sh
case "$*" in
show*SystemState) echo SystemState=running ;;
show*) printf 'LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nType=notify\nConditionResult=yes\n' ;;
*daemon-reload) cp /etc/systemd/system/app.service /run/unit ;;
*reload*app.service | *restart*app.service) cp /etc/app.conf /run/loaded ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
`
)

// The paths of the MachineConfigs on a machine.
const (
	firstPath = "/var/first.json"
	nextPath  = "/var/next.json"
)

// applier kills machines that change from one MachineConfig to another.
type applier struct {
	w        *world
	sysroot  string // of the machine before the change
	old, new system // before the change, and after it
}

// system is the content of a running system by path, one line for each entry.
type system struct{ etc, vars map[string]string }

// TestKillsOfApply (P55, P56, P57, P58) kills "pivot apply", and the programs that it runs, at
// system calls. Wherever it was killed, the next "pivot apply" must complete the change.
func TestKillsOfApply(t *testing.T) {
	programs := script.Programs(t)
	must(t, os.WriteFile(filepath.Join(programs, "systemctl"), []byte(systemctl), 0o755))
	t.Run("committed", func(t *testing.T) { killCommit(t, programs) })
	t.Run("live", func(t *testing.T) { killLive(t, programs) })
}

// killCommit applies a MachineConfig with an image, units, /var, a password and removals. After a
// kill the default is the old system or the new one, checked entry by entry.
func killCommit(t *testing.T, programs string) {
	w, image := newApplierWorld(t, programs)
	a := w.applier(t, fmt.Sprintf(imageConfig, image))
	start, m := time.Now(), w.machine(t, a.sysroot)
	effects := m.pivot(t, syskill.Stop{}, "apply", nextPath).Effects
	a.new.etc = entriesOf(t, m.next(t).Path, "/etc")
	m.boot(t)
	m.pivot(t, syskill.Stop{}, "project")
	a.new.vars = entriesOf(t, m.Var, "")
	a.expectNew(t, m, map[string]string{
		"/etc/systemd/system/multi-user.target.wants/only.service": "-> /usr/lib/systemd/system/only.service",
		"/etc/systemd/system/masked.service":                       "-> /dev/null", "/etc/app.conf": "600 0:0 second", "/etc/default": "644 0:0 default of B.2\n",
		"/etc/systemd/system/app.service": "", "/etc/app.gone": "", "/etc/app.link": "-> app/made",
	}, map[string]string{"/lib/own": "600 0:0 second", "/opt/tool": "755 0:0 second", "/home/core/.ssh/authorized_keys.d/ignition": "600 1000:1001 second\n"})
	for n, at := range afterImport(effects) {
		t.Run(fmt.Sprintf("%d %s", at, effects[at-1]), func(t *testing.T) {
			m := a.killed(t, at)
			if said, err := ostreetree.Ostree("fsck", "--repo="+m.repo()); err != nil || strings.Contains(said, "partial") {
				t.Errorf("the repository is not whole: %s, %v", said, err)
			}
			a.expectNext(t, m)
			if n%2 == 1 {
				m.boot(t)
				m.pivot(t, syskill.Stop{}, "project")
			}
			m.pivot(t, syskill.Stop{}, "apply", nextPath)
			a.expectNext(t, m)
			if m.boot(t); version(m.Root) != "B.2" {
				t.Fatal("the old system runs")
			}
			m.pivot(t, syskill.Stop{}, "project")
			a.arrived(t, m)
		})
	}
	w.report(t, "an apply", effects, start)
}

// killLive applies a MachineConfig that needs no reboot. After a kill the interrupted change is
// finished, in the same boot or before services start in the next one. /etc is then the old or the
// new one, complete.
func killLive(t *testing.T, programs string) {
	w, _ := newApplierWorld(t, programs)
	w.host.Write(disruption.RulesPath, []byte(liveRules))
	a := w.applier(t, liveConfig)
	start, m := time.Now(), w.machine(t, a.sysroot)
	effects := m.pivot(t, syskill.Stop{}, "apply", "--reboot=never", nextPath).Effects
	a.new = system{entriesOf(t, m.Root, "/etc"), a.old.vars}
	a.expectNew(t, m, map[string]string{
		"/etc/app.conf": "600 0:0 live", "/etc/app.gone": "", "/etc/app.link": "-> app/made", "/etc/app/made": "644 0:0 live",
		"/etc/default": "", // the mounted /usr is the testing machine's, without usr/etc/default
		"/etc/systemd/system/multi-user.target.wants/app.service": "",
	}, nil)
	for n, at := range points(effects, few) {
		t.Run(fmt.Sprintf("%d %s", at, effects[at-1]), func(t *testing.T) {
			m := a.killed(t, at, "--reboot=never")
			if n%2 == 1 {
				m.boot(t)
			}
			m.pivot(t, syskill.Stop{}, "apply", "--finish")
			a.expectOne(t, "what runs", entriesOf(t, m.Root, "/etc"), false)
			if n%2 == 1 {
				m.startService(t)
			}
			m.pivot(t, syskill.Stop{}, "apply", "--reboot=never", nextPath)
			a.arrived(t, m)
			for file, of := range known {
				knows, err := os.ReadFile(filepath.Join(m.RunDir, file))
				is, ierr := os.ReadFile(m.Root + of)
				if err != nil || ierr != nil || string(knows) != string(is) {
					t.Errorf("the service knows %q of %s, and there is %q (%v, %v)", knows, of, is, err, ierr)
				}
			}
		})
	}
	w.report(t, "a live apply", effects, start)
}

// afterImport returns points from the first run of ostree on, which is the second exec. TestKills
// covers kills before that. A long run returns all points.
func afterImport(effects []string) (at []int) {
	if long() {
		return points(effects, few)
	}
	from := 1 + slices.Index(effects[1:], "exec")
	for _, p := range points(effects[from:], few/2) {
		at = append(at, from+p)
	}
	return at
}

// newApplierWorld returns a world with a host that has what units, /var and passwords need, and the reference of an
// image with its own unit.
func newApplierWorld(t *testing.T, programs string) (w *world, image string) {
	t.Helper()
	w = &world{host: hostdir.New(t), programs: programs}
	h := w.host
	unit := "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
	h.PutIntoNext(map[string]string{"usr/lib/systemd/system/only.service": unit, "usr/lib/systemd/system/off.service": unit, "usr/lib/systemd/system-preset/90.preset": "disable *\n"})
	h.Serve(h.NativeImage())
	for path, text := range map[string]string{
		"/etc/passwd": "root:x:0:0::/root:/bin/sh\ncore:x:1000:1001::/home/core:/bin/sh\n", "/etc/group": "root:x:0:\ncore:x:1001:\n", "/etc/shadow": "core:*:1::::::\n",
		"/etc/systemd/system/pivot-project.service": "", "/var/lib/own": "own", firstPath: firstConfig,
	} {
		h.Write(path, []byte(text))
	}
	must(t, os.MkdirAll(h.Path("/var/home/core"), 0o700))
	must(t, os.Chown(h.Path("/var/home/core"), 1000, 1001))
	return w, h.Image
}

// applier prepares the machine that is copied and killed: it has the first MachineConfig applied.
func (w *world) applier(t *testing.T, next string) *applier {
	t.Helper()
	w.host.Write(nextPath, []byte(next))
	m := w.machine(t, w.host.Physical())
	m.pivot(t, syskill.Stop{}, "apply", firstPath)
	m.boot(t)
	m.pivot(t, syskill.Stop{}, "project")
	if r := m.pivot(t, syskill.Stop{}, "verify"); r.Output != "" {
		t.Fatal(r.Output)
	}
	return &applier{w: w, sysroot: m.Physical, old: system{entriesOf(t, m.Root, "/etc"), entriesOf(t, m.Var, "")}}
}

// killed returns a machine after a kill of its apply at an effect. The machine is still in the same boot.
func (a *applier) killed(t *testing.T, at int, options ...string) *machine {
	t.Helper()
	m := a.w.machine(t, a.sysroot)
	m.startService(t)
	a.w.cases++
	if r := m.pivot(t, syskill.Stop{At: at, Signal: syscall.SIGKILL}, append([]string{"apply", nextPath}, options...)...); r.Killed {
		a.w.killed++
	} else {
		t.Logf("it had only %d effects", len(r.Effects))
	}
	return m
}

// known maps the files in /run where the stand-ins keep what they have read to the paths of the
// originals.
var known = map[string]string{"loaded": "/etc/app.conf", "unit": "/etc/systemd/system/app.service"}

// startService simulates the service's start in a boot: the service reads its configuration, and
// systemd the unit.
func (m *machine) startService(t *testing.T) {
	t.Helper()
	for file, of := range known {
		text, err := os.ReadFile(m.Root + of)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(m.RunDir, file), text, 0o644))
	}
}

// expectNext checks that the running and the default deployment each are the old or the new system.
func (a *applier) expectNext(t *testing.T, m *machine) {
	t.Helper()
	next := m.next(t)
	isNew := version(next.Path) == "B.2"
	for arg, wanted := range map[string]bool{" first=1": !isNew, " second=1": isNew} {
		if strings.Contains(next.Entry.Options, arg) != wanted {
			t.Errorf("a mixture: version %s with %q", version(next.Path), next.Entry.Options)
		}
	}
	for _, root := range []string{next.Path, m.Root} {
		a.expectOne(t, "version "+version(root), entriesOf(t, root, "/etc"), version(root) == "B.2")
	}
	if vars := entriesOf(t, m.Var, ""); version(m.Root) != "B.2" {
		same(t, "/var before the reboot", vars, a.old.vars)
	}
}

// expectOne checks that an /etc is the new system's or, unless isNew, the old system's.
func (a *applier) expectOne(t *testing.T, what string, etc map[string]string, isNew bool) {
	t.Helper()
	if isNew || !maps.Equal(etc, a.old.etc) && maps.Equal(etc, a.new.etc) {
		same(t, what, etc, a.new.etc)
		return
	}
	same(t, what, etc, a.old.etc)
}

// arrived checks that the machine runs the new system and nothing is left to apply.
func (a *applier) arrived(t *testing.T, m *machine) {
	t.Helper()
	if r := m.pivot(t, syskill.Stop{}, "apply", nextPath); !strings.Contains(r.Output, "nothing to do") {
		t.Errorf("applied again it says\n%s", r.Output)
	}
	same(t, "/etc in the end", entriesOf(t, m.Root, "/etc"), a.new.etc)
	same(t, "/var in the end", entriesOf(t, m.Var, ""), a.new.vars)
	if r := m.pivot(t, syskill.Stop{}, "verify"); r.Output != "" {
		t.Errorf("verify says\n%s", r.Output)
	}
}

// expectNew checks the new system against its MachineConfig; "" means that there is no entry.
func (a *applier) expectNew(t *testing.T, m *machine, etc, vars map[string]string) {
	t.Helper()
	for path, want := range etc {
		if a.new.etc[path] != want {
			t.Errorf("in the new system %s is %q, want %q", path, a.new.etc[path], want)
		}
	}
	for path, want := range vars {
		if a.new.vars[path] != want {
			t.Errorf("in the new system /var%s is %q, want %q", path, a.new.vars[path], want)
		}
	}
	a.arrived(t, m)
}

// report checks the number of kills and logs the result.
func (w *world) report(t *testing.T, what string, effects []string, start time.Time) {
	t.Helper()
	if w.killed < w.cases*9/10 || w.killed == 0 {
		t.Errorf("only %d kills in %d cases", w.killed, w.cases)
	}
	t.Logf("swept kills of the real program, %s: %d effects, %d cases, %d kills, %.0f s", what, len(effects), w.cases, w.killed, time.Since(start).Seconds())
}

// entriesOf returns the entries below a directory, without pivot's own state in /var.
func entriesOf(t *testing.T, root, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root+dir, func(name string, d fs.DirEntry, err error) error {
		path := strings.TrimPrefix(name, root)
		if err != nil || path == "/lib/pivot" {
			return cmp.Or(err, fs.SkipDir)
		}
		f, _, err := hostfiles.Read(root, path)
		if all[path] = fmt.Sprintf("%o %d:%d %s", f.Mode, f.UID, f.GID, f.Content); f.Kind == hostfiles.KindLink {
			all[path] = "-> " + f.Target
		}
		return err
	}))
	return all
}

// same compares two trees and names each entry that differs.
func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for path, text := range want {
		if got[path] != text {
			t.Errorf("a mixture: %s has %s as %.200q, want %.200q", what, path, got[path], text)
		}
	}
	for path, text := range got {
		if _, wanted := want[path]; !wanted {
			t.Errorf("a mixture: %s has %s as %.200q too", what, path, text)
		}
	}
}
