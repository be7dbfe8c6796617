package stories_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
)

// services stands in for systemd: units that are not in units are active.
type services struct {
	calls    []string
	units    map[string]host.UnitState // units in another state
	fails    map[string]error          // calls that fail
	starting bool
	before   func(call string) // runs before each call
}

func (s *services) call(what string) error {
	if s.before != nil {
		s.before(what)
	}
	s.calls = append(s.calls, what)
	return s.fails[what]
}

func (s *services) DaemonReload(context.Context) error           { return s.call("daemon-reload") }
func (s *services) Reload(_ context.Context, unit string) error  { return s.call("reload " + unit) }
func (s *services) Restart(_ context.Context, unit string) error { return s.call("restart " + unit) }
func (s *services) UpdateTrust(context.Context) error            { return s.call("update-ca-trust") }
func (s *services) Starting(context.Context) (bool, error)       { return s.starting, nil }
func (s *services) State(_ context.Context, unit string) (host.UnitState, error) {
	if state, known := s.units[unit]; known {
		return state, nil
	}
	return host.UnitState{Load: "loaded", Active: "active", Sub: "running", Result: "success", Type: "notify", Condition: true}, nil
}

// changer applies MachineConfigs to a machine with services.
type changer struct {
	*hostdir.Host
	*services
	t     *testing.T
	disk  hostfiles.Disk // nil: the machine's
	when  day2.When
	notes string
}

// newChanger returns one for a machine that has rules, and a first MachineConfig.
func newChanger(t *testing.T) *changer {
	t.Helper()
	c := &changer{Host: hostdir.New(t), services: &services{}, t: t}
	c.Write(disruption.RulesPath, []byte(liveRules))
	c.apply(liveV1, true)
	c.calls = nil
	return c
}

func (c *changer) newMachine() *machine.Machine {
	m := newMachine(c.t, c.Host)
	m.Systemd = c.services
	if c.disk != nil {
		host := *m.Host
		host.Disk = c.disk
		m.Host = &host
	}
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			c.notes += e.Message + "\n"
		}
	}
	return m
}

func (c *changer) story(spec string) *day2.Apply {
	c.notes = ""
	return &day2.Apply{Machine: c.newMachine(), Config: day2.Config{File: "mc.yaml", Data: []byte("metadata: {name: a}\nspec:\n" + spec)}, When: c.when}
}

// apply applies a MachineConfig without an error.
func (c *changer) apply(spec string, changes bool) {
	c.t.Helper()
	if changed, err := c.story(spec).Run(c.t.Context(), day2.RunOptions{}); err != nil || changed != changes {
		c.t.Fatalf("changed %v, want %v, %v", changed, changes, err)
	}
}

const liveRules = `
files:
- path: /etc/app
  actions: [{type: Reload, reload: {serviceName: app.service}}]
- path: /etc/link
  actions: [{type: None}]
- path: /etc/linked
  actions: [{type: None}]
- path: /etc/default
  actions: [{type: Restart, restart: {serviceName: other.service}}]
units:
- name: app.service
  actions: [{type: Restart, restart: {serviceName: crio.service}}]
`

const liveV1 = `
  config:
    ignition: {version: 3.4.0}
    storage:
      directories: [{path: /etc/app, mode: 0755}]
      files:
      - {path: /etc/app/conf, contents: {source: "data:,one"}}
      - {path: /etc/app/old/file, contents: {source: "data:,old"}}
      - {path: /etc/default, contents: {source: "data:,mine"}}
`

const liveV2 = `
  config:
    ignition: {version: 3.4.0}
    storage:
      directories: [{path: /etc/app, mode: 0750}]
      files:
      - {path: /etc/app/conf, mode: 0600, contents: {source: "data:,two"}}
      - {path: /etc/app/new/deep/file, contents: {source: "data:,new"}}
      links: [{path: /etc/link, target: app/conf}]
    systemd:
      units:
      - {name: app.service, enabled: true, contents: "[Service]\nExecStart=/bin/app\n[Install]\nWantedBy=multi-user.target\n", dropins: [{name: x.conf, contents: "[Unit]\n"}]}
`

// etc lists everything below the running /etc that the MachineConfigs change.
func (c *changer) etc() string {
	c.t.Helper()
	return shell(c.t, c.Host, `cd etc && find app link default systemd pivot -printf '%p %y %m %l\n' 2>/dev/null | sort; cat app/conf default; true`)
}

// TestLive (P56): if no change needs a reboot, the running system is changed: no deployment, no
// reboot, each action once and in order, then the record. The way back works the same.
func TestLive(t *testing.T) {
	c := newChanger(t)
	c.when = day2.RebootNever
	v1, deployments := c.etc(), shell(t, c.Host, "ls sysroot/ostree/deploy/os/deploy")
	c.before = func(call string) {
		if got := c.Read("/etc/app/conf"); string(got) != "two" || strings.Contains(string(c.Read(machineconfig.RecordPath)), "two") {
			t.Errorf("at %q /etc/app/conf is %q; the record must come after it", call, got)
		}
	}
	c.apply(liveV2, true)
	want := []string{"daemon-reload", "reload app.service", "restart other.service", "restart crio.service"}
	if !slices.Equal(c.calls, want) || c.Reboots != 0 || shell(t, c.Host, "ls sysroot/ostree/deploy/os/deploy") != deployments {
		t.Errorf("calls %q, want %q; %d reboots", c.calls, want, c.Reboots)
	}
	got := c.etc()
	for _, line := range []string{
		"app d 750 ", "app/conf f 600 ", "app/new d 755 ", "app/new/deep d 755 ", "app/new/deep/file f 644 ", "link l 777 app/conf",
		"systemd/system/app.service f 644 ", "systemd/system/app.service.d/x.conf f 644 ",
		"systemd/system/multi-user.target.wants/app.service l 777 /etc/systemd/system/app.service", "pivot/machineconfig.json f 600 ", "twodefault of A.1",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("/etc lacks %q:\n%s", line, got)
		}
	}
	if strings.Contains(got, "old/file") || strings.Contains(got, "live") {
		t.Errorf("something is left:\n%s", got)
	}
	if drift := verify(t, c.Host); drift != "" {
		t.Errorf("drift %s", drift)
	}
	if r, err := pivot.JournalIn(c.Root).Load(); err != nil || r.Phase != pivot.PhaseDone {
		t.Errorf("journal %+v, %v", r, err)
	}
	c.before, c.calls = nil, nil
	c.apply(liveV2, false)
	c.apply(liveV1, true)
	// Parent directories that were created stay, as they do with a deployment.
	for line := range strings.Lines(v1) {
		if got := c.etc(); !strings.Contains(got, line) || strings.Contains(got, " l ") || len(c.calls) != 4 {
			t.Fatalf("back: %q,\n%s\nwant\n%s", c.calls, got, v1)
		}
	}
}

// TestLiveRemovals: a drop-in that must not be there is removed from the running system, and so is a directory that nobody
// asks for any more, if nothing is in it.
func TestLiveRemovals(t *testing.T) {
	c := newChanger(t)
	c.when = day2.RebootNever
	const dropIn, dir = "/etc/systemd/system/app.service.d/x.conf", "/etc/app/only"
	shell(t, c.Host, "mkdir -p etc/systemd/system/app.service.d")
	c.Write(dropIn, []byte("[Unit]\n"))
	units := "    systemd: {units: [{name: app.service, dropins: [{name: x.conf}]}]}\n"
	c.apply(strings.Replace(liveV1, "directories: [", "directories: [{path: "+dir+"}, ", 1)+units, true)
	if _, err := os.Lstat(c.Path(dropIn)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", dropIn, err)
	}
	if info, err := os.Lstat(c.Path(dir)); err != nil || !info.IsDir() {
		t.Errorf("%s: %v", dir, err)
	}
	if drift := verify(t, c.Host); drift != "" {
		t.Errorf("drift %s", drift)
	}
	c.apply(liveV1+units, true)
	if _, err := os.Lstat(c.Path(dir)); !errors.Is(err, fs.ErrNotExist) || strings.Contains(c.notes, "stays") {
		t.Errorf("%s is there: %v; notes %s", dir, err, c.notes)
	}
}

// TestLivePlan (P56): a plan says what each change needs and why, and which actions services
// need. A plan that needs a reboot is refused, before anything is written, if none is
// allowed; otherwise it is committed as a whole.
func TestLivePlan(t *testing.T) {
	c := newChanger(t)
	plan := func(spec string) pivot.Plan {
		t.Helper()
		p, err := c.story(spec).Plan(t.Context(), day2.RunOptions{})
		must(t, err)
		return p
	}
	p := plan(liveV2)
	if p.Reboots != 0 || fmt.Sprint(p.Actions) != "[daemon-reload reload app.service restart other.service restart crio.service]" || len(p.Needs) != len(p.Entries) ||
		!slices.ContainsFunc(p.Needs, func(n pivot.Need) bool { return n.String() == "/etc/app/conf: reload app.service (rule for /etc/app)" }) {
		t.Errorf("plan %+v", p)
	}
	shell(t, c.Host, "ln -s app etc/linked")
	before := c.etc()
	for _, r := range []struct{ spec, want string }{
		{strings.Replace(liveV2, "{path: /etc/link,", "{path: /etc/linked/x,", 1), "/etc/linked/x: /etc/linked is no directory"},
		{liveV2 + "  kernelArguments: [a=1]\n", "kernelArguments: only a reboot changes it"},
		{"  osImageURL: " + c.Image + "\n" + liveV1, "image: only a reboot changes it"},
		{strings.Replace(liveV2, "{path: /etc/link", "{path: /etc/unruled", 1), "/etc/unruled: no rule says that it needs none"},
		{strings.Replace(liveV2, "{path: /etc/app/conf", "{path: /etc/app/old, contents: {source: \"data:,x\"}}\n      - {path: /etc/app/conf", 1), "/etc/app/old: a file comes where there is a directory"},
	} {
		p := plan(r.spec)
		if p.Reboots != 1 || len(p.Actions) > 0 || !slices.Contains(p.RebootReasons(), r.want) {
			t.Errorf("%s: reboots %d, actions %v, reasons %q", r.want, p.Reboots, p.Actions, p.RebootReasons())
		}
		c.when = day2.RebootNever
		if _, err := c.story(r.spec).Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), r.want) || fault.HintOf(err) == "" {
			t.Errorf("never: %v", err)
		}
		c.when = ""
	}
	if len(c.calls) > 0 || c.etc() != before {
		t.Errorf("calls %q, /etc\n%s", c.calls, c.etc())
	}
	// RebootLater: the new deployment has all of the change, the running system none.
	c.apply(liveV2+"  kernelArguments: [a=1]\n", true)
	if c.etc() != before || c.Reboots != 0 || len(c.calls) > 0 || !strings.Contains(c.notes, "a reboot is needed: kernelArguments") {
		t.Errorf("calls %q, %d reboots, notes %s", c.calls, c.Reboots, c.notes)
	}
	// The running system needs no change, but the next boot would be another system.
	c.apply(liveV1, false)
	if !strings.Contains(c.notes, "warning: the next boot starts deployment ") || !strings.Contains(c.notes, "pivot rollback takes it back") {
		t.Errorf("notes %s", c.notes)
	}
	// A pending deployment would lack a live change, so a new deployment replaces it.
	p = plan(liveV2)
	if len(p.RebootReasons()) != 1 || !strings.Contains(p.RebootReasons()[0], "is committed and waits for its reboot") {
		t.Errorf("reasons %q", p.RebootReasons())
	}
	c.apply(liveV2, true)
	c.Boot()
	if got := string(c.Read("/etc/app/conf")); got != "two" || strings.Contains(c.Options(), "a=1") {
		t.Errorf("/etc/app/conf is %q, options %s", got, c.Options())
	}
	// RebootNow: always by a reboot, without reading the rules.
	c.Write(disruption.RulesPath, []byte("files: x"))
	if _, err := c.story(liveV1).Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "/etc/pivot/disruption.yaml:1: error: $.files") {
		t.Errorf("bad rules: %v", err)
	}
	changed, _, err := apply(t, c.Host, liveV1)
	if err != nil || !changed || string(c.Read("/etc/app/conf")) != "one" {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// TestLiveRules (P56): a MachineConfig is judged by the rules that the machine has already. Rules
// that it brings apply from the next one on, and are validated before they are written.
func TestLiveRules(t *testing.T) {
	c := newChanger(t)
	c.when = day2.RebootNever
	brings := func(rules string) string {
		return "  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files:\n      - {path: /etc/pivot/disruption.yaml, contents: {source: \"data:;base64," + base64.StdEncoding.EncodeToString([]byte(rules)) + "\"}}\n"
	}
	_, err := c.story(brings("files: x")).Run(t.Context(), day2.RunOptions{})
	if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "storage.files[0]: pivot could not read its file disruption.yaml: /etc/pivot/disruption.yaml:1: error: $.files") {
		t.Errorf("bad rules are brought: %v", err)
	}
	all := brings("files: [{path: /etc/motd, actions: [{type: None}]}]") + "      - {path: /etc/motd}\n"
	if _, err := c.story(all).Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "/etc/motd: no rule") {
		t.Errorf("a MachineConfig is judged by the rules that it brings: %v", err)
	}
	c.apply(strings.ReplaceAll(all, "      - {path: /etc/motd}\n", ""), true)
	c.apply(all, true)
	if c.Read("/etc/motd") == nil {
		t.Error("no /etc/motd")
	}
}

// TestLiveGoesBack (P56): if a service does not accept the change, the change is taken back: all
// files are as before, and the actions that were carried out are repeated.
func TestLiveGoesBack(t *testing.T) {
	c := newChanger(t)
	c.when = day2.RebootNever
	before := c.etc()
	for _, r := range []struct {
		call, want string
		calls      []string
	}{
		{"daemon-reload", "cannot daemon-reload: it is broken", []string{"daemon-reload", "daemon-reload"}},
		{"restart other.service", "cannot restart other.service: it is broken", []string{
			"daemon-reload", "reload app.service", "restart other.service", "daemon-reload", "reload app.service", "restart other.service"}},
	} {
		c.calls, c.fails = nil, map[string]error{r.call: errors.New("it is broken")}
		_, err := c.story(liveV2).Run(t.Context(), day2.RunOptions{})
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), r.want+"; all of the change is taken back") || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", r.call, err)
		}
		if got := c.etc(); got != before || !slices.Equal(c.calls, r.calls) || !strings.Contains(c.notes, "also after restoring the earlier files") {
			t.Errorf("%s: calls %q, /etc\n%s\nwant\n%s", r.call, c.calls, got, before)
		}
	}
	// The reload succeeds, but the service dies.
	c.fails, c.calls = nil, nil
	c.units = map[string]host.UnitState{}
	c.services.before = func(call string) {
		if call == "reload app.service" {
			c.units["app.service"] = host.UnitState{Load: "loaded", Active: "failed", Sub: "failed", Result: "exit-code"}
		}
	}
	if _, err := c.story(liveV2).Run(t.Context(), day2.RunOptions{}); err == nil || !strings.Contains(err.Error(), "cannot reload app.service: it is failed (failed, result exit-code) afterwards") || c.etc() != before {
		t.Errorf("a service that died: %v", err)
	}
}

// TestLiveWithoutOwner (P53): an owner that the running system does not have is named before anything is changed, below
// /etc and outside.
func TestLiveWithoutOwner(t *testing.T) {
	c := newVarChanger(t)
	c.Write(disruption.RulesPath, []byte(`files: [{path: /etc/app, actions: [{type: None}]}, {path: /var/data, actions: [{type: None}]}]`))
	all := func() string { return shell(t, c.Host, "find etc var/data -printf '%p %i %C@\\n' | sort") }
	before := all()
	for _, file := range []string{"path: /etc/app/conf, user: {name: nobody-knows}", "path: /etc/app/conf, group: {name: nobody-knows}", "path: /var/data/conf, user: {name: nobody-knows}"} {
		_, err := c.story("  config:\n    ignition: {version: 3.4.0}\n    storage: {files: [{path: /etc/app/a}, {"+file+"}]}\n").Run(t.Context(), day2.RunOptions{})
		if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), `"nobody-knows" in the running system`) || fault.HintOf(err) == "" {
			t.Errorf("%s: error %v", file, err)
		}
		if got := all(); got != before {
			t.Errorf("%s: there is\n%s\nwant\n%s", file, got, before)
		}
	}
}

// TestLiveUnits (P56): actions on units that are not running or do not exist, or end the system.
func TestLiveUnits(t *testing.T) {
	absent, masked := host.UnitState{Load: "not-found", Active: "inactive"}, host.UnitState{Load: "masked", Active: "inactive"}
	stopped := host.UnitState{Load: "loaded", Active: "inactive", Type: "notify"}
	ran := host.UnitState{Load: "loaded", Active: "inactive", Type: "oneshot", Result: "success", Condition: true}
	unmet := host.UnitState{Load: "loaded", Active: "inactive", Type: "oneshot", Result: "success"}
	const bundle = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
	const trust = "coreos-update-ca-trust.service"
	for _, r := range []struct {
		name, path, want string
		units            map[string]host.UnitState
		fails            bool
	}{
		{"no CRI-O", "/etc/containers/policy.json", "[]", map[string]host.UnitState{"crio.service": absent}, false},
		{"CRI-O is masked", "/etc/containers/policy.json", "[]", map[string]host.UnitState{"crio.service": masked}, false},
		{"CRI-O does not run", "/etc/containers/policy.json", "[]", map[string]host.UnitState{"crio.service": stopped}, false},
		{"kubelet does not run, and does not come up", "/etc/kubernetes/credential-providers", "[restart kubelet.service restart kubelet.service]", map[string]host.UnitState{"kubelet.service": stopped}, true},
		{"certificates", bundle, "[restart " + trust + " restart crio.service]", map[string]host.UnitState{trust: ran}, false},
		{"certificates, without the service", bundle, "[update-ca-trust restart crio.service]", map[string]host.UnitState{trust: absent}, false},
		{"CRI-O is another name of the end of the system", "/etc/containers/policy.json", "[]", map[string]host.UnitState{"crio.service": {ID: "systemd-reboot.service", Load: "loaded", Active: "active"}}, true},
		{"certificates, on the first boot only", bundle, "[restart " + trust + " update-ca-trust restart crio.service]", map[string]host.UnitState{trust: unmet}, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := &changer{Host: hostdir.New(t), services: &services{units: r.units}, t: t, when: day2.RebootNever}
			spec := "  config:\n    ignition: {version: 3.4.0}\n    storage: {files: [{path: " + r.path + ", contents: {source: \"data:,x\"}}]}\n"
			_, err := c.story(spec).Run(t.Context(), day2.RunOptions{})
			if (err != nil) != r.fails || fmt.Sprint(c.calls) != r.want {
				t.Errorf("calls %q, want %s, %v", c.calls, r.want, err)
			}
			if there := c.Read(r.path) != nil; there == r.fails {
				t.Errorf("%s is there: %v", r.path, there)
			}
		})
	}
}

// TestLiveLabels: a live change labels files by the policy of the running system, whatever label
// the kernel gives to files that this program creates.
func TestLiveLabels(t *testing.T) {
	const etc, app = "system_u:object_r:etc_t:s0", "system_u:object_r:app_t:s0"
	h := hostdir.New(t)
	h.Policy("/etc(/.*)? "+etc, "/etc/app(/.*)? "+app)
	h.LoadedPolicy(true, "f")
	c := &changer{Host: h, services: &services{}, t: t, when: day2.RebootNever}
	c.Write(disruption.RulesPath, []byte(liveRules))
	labels := func(of map[string]string) {
		t.Helper()
		for name, want := range of {
			if label, err := hostfiles.LabelOf(h.Path(name)); label != want {
				t.Errorf("%s has the label %q (%v), want %q", name, label, err, want)
			}
		}
	}
	const entries = "  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files: [{path: /etc/app/conf, contents: {source: \"data:,%s\"}}%s]\n"
	const outside = ", {path: /var/lib/probe, contents: {source: \"data:,x\"}}"
	c.apply(fmt.Sprintf(entries, "one", ""), true)
	labels(map[string]string{"/etc/app/conf": app, machineconfig.RecordPath: etc})
	h.Write(projectUnit, nil)
	h.Write("/var/lib/probe", []byte("x"))              // so that only its carrier is written
	c.apply(fmt.Sprintf(entries, "one", outside), true) // the carrier and the record
	labels(map[string]string{machineconfig.RecordPath: etc, projection.ManifestPath: etc})
}

// dying is a disk on which the process dies after a number of effects.
type dying struct {
	hostfiles.OS
	left *int
}

type died struct{}

func (d dying) effect() {
	if *d.left--; *d.left < 0 {
		panic(died{})
	}
}

func (d dying) Mkdir(path string, mode fs.FileMode) error {
	d.effect()
	return d.OS.Mkdir(path, mode)
}

func (d dying) Write(path string, content []byte, mode fs.FileMode) error {
	if *d.left == 0 { // dies halfway through the write
		_ = d.OS.Write(path, content[:len(content)/2], mode)
	}
	d.effect()
	return d.OS.Write(path, content, mode)
}

func (d dying) Make(path string, f hostfiles.File, label string) error {
	if *d.left == 0 && f.Kind == hostfiles.KindFile { // dies halfway through the write
		f.Content = f.Content[:len(f.Content)/2]
		_ = d.OS.Make(path, f, label)
	}
	d.effect()
	return d.OS.Make(path, f, label)
}

func (d dying) Sync(path string) error       { d.effect(); return d.OS.Sync(path) }
func (d dying) Rename(from, to string) error { d.effect(); return d.OS.Rename(from, to) }
func (d dying) Remove(path string) error     { d.effect(); return d.OS.Remove(path) }
func (d dying) Own(path string, e hostfiles.Entry) error {
	d.effect()
	return d.OS.Own(path, e)
}

// TestLiveForward (P56): killed at any effect, the change was never begun, or the next run in the
// same boot finishes it with all its actions. In the next boot only services that run already
// are restarted: the others start with the new files.
func TestLiveForward(t *testing.T) {
	c := newChanger(t)
	c.apply(liveV2, true)
	whole, actions := c.etc(), fmt.Sprint(c.calls)
	c.apply(liveV1, true)
	old := c.etc()
	died, finished, step := 0, 0, sample.Step(13)
	for n := 0; ; n += step {
		left := n
		c.disk, c.calls, c.services.before = dying{left: &left}, nil, func(string) { dying{left: &left}.effect() }
		c.starting, c.units = false, nil
		if !c.dies(liveV2) {
			break
		}
		died++
		rebooted := n%3 == 2
		if rebooted {
			c.Boot()
			c.starting = true
			c.units = map[string]host.UnitState{"other.service": {Load: "loaded", Active: "inactive"}, "crio.service": {Load: "loaded", Active: "inactive"}}
		}
		c.disk, c.calls, c.services.before = nil, nil, nil
		told := strings.Contains(string(c.Read(day2.LiveJournalPath)), `"done": true`) // all actions were done before it died
		m := c.newMachine()
		found, err := day2.Finish(t.Context(), m)
		must(t, err)
		want := old
		if found || strings.Contains(string(c.Read(machineconfig.RecordPath)), "two") {
			want = whole
		}
		if got := c.etc(); got != want {
			t.Fatalf("killed before effect %d, found %v: /etc\n%s\nwant\n%s", n, found, got, want)
		}
		expected := actions
		if rebooted {
			expected = "[daemon-reload restart app.service]"
		}
		if found {
			finished++
		}
		if !found || told {
			expected = "[]"
		}
		if got := fmt.Sprint(c.calls); got != expected {
			t.Errorf("killed before effect %d, rebooted %v: calls %s, want %s", n, rebooted, got, expected)
		}
		if drift := verify(t, c.Host); drift != "" && found {
			t.Errorf("killed before effect %d: drift %s", n, drift)
		}
		c.starting, c.units = false, nil
		if want == whole {
			c.apply(liveV1, true)
		}
	}
	if died*step < 40 || finished*step < 30 {
		t.Errorf("it died %d times and was finished %d times", died, finished)
	}
	if c.etc() != whole {
		t.Errorf("undisturbed: %s", c.etc())
	}
}

// dies applies a MachineConfig and reports whether the process died.
func (c *changer) dies(spec string) (dead bool) {
	c.t.Helper()
	defer recoverDeath(&dead)
	_, err := c.story(spec).Run(c.t.Context(), day2.RunOptions{})
	must(c.t, err)
	return false
}

// TestLiveStopped (P56): a run that is stopped during a slow action leaves the change to the
// next run of any command that changes the machine.
func TestLiveStopped(t *testing.T) {
	c := newChanger(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.services.before = func(string) { cancel() }
	c.fails = map[string]error{"daemon-reload": context.Canceled}
	_, err := c.story(liveV2).Run(ctx, day2.RunOptions{})
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "stopped in the middle of a change of the running system") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(c.Path(day2.LiveJournalPath)); err != nil {
		t.Error(err)
	}
	m := c.newMachine()
	s, err := m.Status(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(s.Notes), "pivot apply --finish") {
		t.Errorf("status %+v, %v", s, err)
	}
	c.services.before, c.fails = nil, nil
	c.apply(liveV2, false) // finishes, and then there is nothing to do
	if string(c.Read("/etc/app/conf")) != "two" || !strings.Contains(c.notes, "finishing a change of the running system") {
		t.Errorf("notes %s", c.notes)
	}
}
