package stories_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/projection"
	"machine-pivot/test/tools/sample"
)

const liveVarRules = `
files:
- path: /opt/app
  actions: [{type: Reload, reload: {serviceName: app.service}}]
- path: /var/data
  actions: [{type: None}]
`

const liveVar1 = `
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /var/lib/kubelet/config.json, mode: 384, contents: {source: "data:,pull%20one"}}
      - {path: /opt/app/conf, contents: {source: "data:,one"}}
      - {path: /opt/app/gone, contents: {source: "data:,one"}}
      - {path: /var/data/file, contents: {source: "data:,ours"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key one], passwordHash: $y$one}]}
`

const liveVar2 = `
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /var/lib/kubelet/config.json, mode: 384, contents: {source: "data:,pull%20two"}}
      - {path: /opt/app/conf, mode: 384, contents: {source: "data:,two"}}
      - {path: /opt/app/new/file, contents: {source: "data:,two"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key two], passwordHash: $y$two}]}
`

const shadowLines = "root:*:1::::::\ncore:!!:1:0:99999:7:::\nlast:$y$kept:1::::::\n"

// newVarChanger returns a machine with rules for entries outside of /etc, which has files there
// and has not had a MachineConfig yet.
func newVarChanger(t *testing.T) *changer {
	t.Helper()
	c := &changer{Host: projecting(t), services: &services{}, t: t, when: day2.RebootNever}
	c.Write(disruption.RulesPath, []byte(liveVarRules))
	c.Write("/etc/shadow", []byte(shadowLines))
	c.Write("/var/data/file", []byte("own"))
	shell(t, c.Host, "chmod 640 etc/shadow && chown 0:42 etc/shadow")
	return c
}

// outside lists everything in the running system that liveVar1 and liveVar2 change outside of
// /etc, and how much of it is carried.
func (c *changer) outside() string {
	c.t.Helper()
	return shell(c.t, c.Host, `cd var && find opt data home lib/kubelet -type d -printf '%p %y %m %U:%G\n' -o -printf '%p %y %m %U:%G ' -exec cat {} ';' -printf '\n' 2>/dev/null | sort || :
cd .. && stat -c '%n %a %U:%G' etc/shadow && cut -d: -f1,2 etc/shadow; ls -A etc/pivot etc/pivot/var 2>/dev/null | grep -v -E '^[0-9a-f]{64}$' || :; ls etc/pivot/var 2>/dev/null | grep -c -E '^[0-9a-f]{64}$' || :`)
}

// TestLiveVar (P56): if the rules allow it, entries outside of /etc and core's password change in
// the running system too. The deployment carries the entries, so they are there after a
// reboot and go with their MachineConfig.
func TestLiveVar(t *testing.T) {
	c := newVarChanger(t)
	before, deployments := c.outside(), shell(t, c.Host, "ls sysroot/ostree/deploy/os/deploy")
	plan, err := c.story(liveVar1).Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	needs := fmt.Sprint(plan.Needs)
	for _, want := range []string{
		"/var/home/core/.ssh/authorized_keys.d/ignition: nothing (default rule for SSH keys and password of core)", "/etc/shadow/core: nothing (default rule for SSH keys and password of core)",
		"/var/lib/kubelet/config.json: nothing (default rule for /var/lib/kubelet/config.json)", "/var/opt/app/conf: reload app.service (rule for /var/opt/app)",
		"/etc/systemd/system/sysinit.target.wants/pivot-project.service: daemon-reload (default rule for unit pivot-project.service)",
	} {
		if !strings.Contains(needs, want) {
			t.Errorf("needs %s\nlack %s", needs, want)
		}
	}
	c.services.before = func(call string) {
		if got := c.Read("/var/opt/app/conf"); call == "reload app.service" && string(got) != "one" {
			t.Errorf("at %q /var/opt/app/conf is %q", call, got)
		}
	}
	c.apply(liveVar1, true)
	c.services.before = nil
	first := c.outside()
	for _, want := range []string{
		"lib/kubelet/config.json f 600 0:0 pull one\n", "opt/app/conf f 644 0:0 one\n", "opt/app/gone f 644", "data/file f 644 0:0 ours\n",
		"home/core/.ssh d 700 1000:1001\n", "home/core/.ssh/authorized_keys.d/ignition f 600 1000:1001 key one\n",
		"etc/shadow 640 root:shadow\nroot:*\ncore:$y$one\nlast:$y$kept\n",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("there is no %q:\n%s", want, first)
		}
	}
	if got := fmt.Sprint(c.calls); got != "[daemon-reload reload app.service]" || c.Reboots != 0 || shell(t, c.Host, "ls sysroot/ostree/deploy/os/deploy") != deployments {
		t.Errorf("calls %s, %d reboots", got, c.Reboots)
	}
	if drift := verify(t, c.Host); drift != "" {
		t.Errorf("drift %s", drift)
	}
	c.apply(liveVar1, false)
	// The next boot projects what is carried, which is already in place.
	c.Boot()
	if notes := project(t, c.Host); notes != "" || c.outside() != first {
		t.Errorf("notes %s, after a reboot\n%s", notes, c.outside())
	}
	c.apply(liveVar2, true)
	second := c.outside()
	for want, is := range map[string]bool{
		"lib/kubelet/config.json f 600 0:0 pull two\n": true, "opt/app/conf f 600 0:0 two\n": true, "opt/app/new/file f 644 0:0 two\n": true, "opt/app/gone": false,
		"data/file f 644 0:0 own\n": true, "authorized_keys.d/ignition f 600 1000:1001 key two\n": true, "core:$y$two\nlast:$y$kept\n": true,
	} {
		if strings.Contains(second, want) != is {
			t.Errorf("there is %q: not %v:\n%s", want, is, second)
		}
	}
	if drift := verify(t, c.Host); drift != "" {
		t.Errorf("drift %s", drift)
	}
	// What was changed locally stays when it is not asked for any more.
	c.Write("/var/opt/app/new/file", []byte("mine"))
	c.apply("  config: {ignition: {version: 3.4.0}}\n", true)
	want := strings.NewReplacer("core:!!", "core:*").Replace(before)
	for line := range strings.Lines(want) { // parent directories of what stays remain, too
		if !strings.Contains(c.outside(), line) {
			t.Errorf("nothing asked for: there is no %q:\n%s", line, c.outside())
		}
	}
	if got := c.outside(); strings.Contains(got, "key two") || strings.Contains(got, "pull") || strings.Count(c.notes, "/var/opt/app/new/file stays") != 1 || string(c.Read("/var/opt/app/new/file")) != "mine" {
		t.Errorf("notes %s, there is\n%s", c.notes, got)
	}
	if c.Read(projection.ManifestPath) != nil || verify(t, c.Host) != "" {
		t.Errorf("it carries %s, drift %s", c.Read(projection.ManifestPath), verify(t, c.Host))
	}
}

// TestLiveVarGoesBack (P56): if a service does not accept a change, all of it is taken back,
// also outside of /etc: earlier local changes there are restored.
func TestLiveVarGoesBack(t *testing.T) {
	c := newVarChanger(t)
	fails := func(spec string) {
		t.Helper()
		before := c.outside()
		c.fails = map[string]error{"reload app.service": errors.New("it is broken")}
		_, err := c.story(spec).Run(t.Context(), day2.RunOptions{})
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "all of the change is taken back") {
			t.Errorf("error %v", err)
		}
		if got := c.outside(); got != before {
			t.Errorf("there is\n%s\nwant\n%s", got, before)
		}
		c.fails = nil
	}
	// The directories and the link of the projecting unit did not exist before, and are removed.
	fails(strings.Replace(liveVar1, "/var/data/file", "/var/data/other", 1))
	fails(liveVar1)
	c.apply(liveVar1, true)
	c.Write("/var/opt/app/conf", []byte("mine"))
	c.Write("/var/data/file", []byte("mine"))
	must(t, os.Remove(c.Path("/var/lib/kubelet/config.json")))
	shell(t, c.Host, "chmod 640 var/opt/app/gone")
	fails(liveVar2)
	// A change that cannot be projected is taken back in the same way.
	shell(t, c.Host, "mkdir var/data/dir && touch var/data/dir/mine")
	before := c.outside()
	_, err := c.story(strings.Replace(liveVar2, "/opt/app/new/file", "/var/data/dir", 1)).Run(t.Context(), day2.RunOptions{})
	if fault.KindOf(err) != fault.CannotWrite && fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "cannot project /var/data/dir: there is more in it") || !strings.Contains(err.Error(), "taken back") || c.outside() != before {
		t.Errorf("error %v, there is\n%s\nwant\n%s", err, c.outside(), before)
	}
}

// TestLiveVarCannotBePutBack: what is outside of /etc and cannot be put back is a reason for a reboot, also at a path
// that stays as it is. The plan says so, nothing is lost, and a commit is possible. For what users put there see
// TestUsersObstructGoesBack.
func TestLiveVarCannotBePutBack(t *testing.T) {
	changed := strings.Replace(liveVar1, "data:,one", "data:,two", 1)
	for name, c := range map[string]struct{ path, do, because string }{
		"a large file":            {"/var/opt/app/conf", "truncate -s 17M conf", "it is too large"},
		"a large file that stays": {"/var/opt/app/gone", "truncate -s 17M gone", "it is too large"},
		"a FIFO":                  {"/var/opt/app/conf", "rm conf && mkfifo conf", "it is no file, directory or link"},
		"a FIFO that stays":       {"/var/opt/app/gone", "rm gone && mkfifo gone", "it is no file, directory or link"},
		"a directory":             {"/var/opt/app/gone", "rm gone && mkdir gone && touch gone/mine", "it is a directory, and a file comes there"},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 3)
			m := newVarChanger(t)
			m.apply(liveVar1, true)
			shell(t, m.Host, "cd var/opt/app && "+c.do)
			there := func() string { return shell(t, m.Host, "stat -c '%F %s %i' ."+c.path) }
			before := there()
			plan, err := m.story(changed).Plan(t.Context(), day2.RunOptions{})
			must(t, err)
			_, err = m.story(changed).Run(t.Context(), day2.RunOptions{})
			want := c.path + ": what is there could not be put back by a change without a reboot: " + c.because
			if plan.Reboots != 1 || !strings.Contains(strings.Join(plan.RebootReasons(), "; "), want) || fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), want) {
				t.Errorf("plan %q, error %v, want %q", plan.RebootReasons(), err, want)
			}
			m.when = day2.RebootLater
			if m.apply(changed, true); there() != before {
				t.Errorf("there is %s, want %s", there(), before)
			}
		})
	}
}

// TestLiveVarAside: what is moved aside outside of /etc is named, also if it comes while the change is made.
func TestLiveVarAside(t *testing.T) {
	c := newVarChanger(t)
	c.apply(liveVar1, true)
	c.fails = map[string]error{"reload app.service": errors.New("it is broken")}
	c.services.before = func(call string) {
		if call == "reload app.service" {
			shell(t, c.Host, "truncate -s 17M var/opt/app/conf")
			c.services.before = nil
		}
	}
	_, err := c.story(strings.Replace(liveVar1, "data:,one", "data:,two", 1)).Run(t.Context(), day2.RunOptions{})
	if err == nil || !strings.Contains(err.Error(), "all of the change is taken back") || string(c.Read("/var/opt/app/conf")) != "one" || !strings.Contains(c.notes, "/var/opt/app: conf was in the way, and is .obstructs-") {
		t.Errorf("%v: %.9q, %s", err, c.Read("/var/opt/app/conf"), c.notes)
	}
}

// TestLiveVarForward (P56): killed at any effect, a change outside of /etc and of a password was
// never begun, or the next run finishes it.
func TestLiveVarForward(t *testing.T) {
	c := newVarChanger(t)
	c.apply(liveVar1, true)
	c.apply(liveVar2, true)
	second := c.outside()
	c.apply(liveVar1, true)
	first := c.outside()
	died, finished, step := 0, 0, sample.Step(13)
	for n := 0; ; n += step {
		left := n
		c.disk = dying{left: &left}
		if !c.dies(liveVar2) {
			break
		}
		died++
		c.disk = nil
		if n%3 == 2 {
			c.Boot()
		}
		if n%2 == 0 {
			project(t, c.Host) // a boot may project before or after the change is finished
		}
		m := c.newMachine()
		found, err := day2.Finish(t.Context(), m)
		must(t, err)
		want := first
		if found || strings.Contains(string(c.Read("/etc/pivot/machineconfig.json")), "two") {
			want, finished = second, finished+1
		}
		if got := c.outside(); got != want {
			t.Fatalf("killed before effect %d, found %v: there is\n%s\nwant\n%s", n, found, got, want)
		}
		if drift := verify(t, c.Host); drift != "" && found {
			t.Errorf("killed before effect %d: drift %s", n, drift)
		}
		if want == second {
			c.apply(liveVar1, true)
		}
	}
	if died*step < 60 || finished*step < 50 || c.outside() != second {
		t.Errorf("it died %d times, was finished %d times; undisturbed:\n%s", died, finished, c.outside())
	}
}

// TestLiveVarNeeds (P56): the reasons why a change outside of /etc needs a reboot.
func TestLiveVarNeeds(t *testing.T) {
	c := newVarChanger(t)
	c.apply(liveVar1, true)
	reasons := func(spec string) string {
		t.Helper()
		plan, err := c.story(spec).Plan(t.Context(), day2.RunOptions{})
		must(t, err)
		return strings.Join(plan.RebootReasons(), "; ")
	}
	if got := reasons(strings.Replace(liveVar2, "/opt/app/new/file", "/srv/x", 1)); got != "/var/srv/x: no rule says that it needs none" {
		t.Errorf("reasons %s", got)
	}
	c.Write(disruption.RulesPath, []byte("sshkey: {actions: [{type: Reboot}]}\n"+liveVarRules))
	if got := reasons(liveVar2); !strings.Contains(got, "/etc/shadow/core: rule for SSH keys and password of core") || !strings.Contains(got, "/ignition: rule for SSH keys") {
		t.Errorf("reasons %s", got)
	}
	c.Write(disruption.RulesPath, []byte(liveVarRules))
	// A pending deployment is replaced by a new one, with what it carries.
	c.when = ""
	c.apply(liveVar1+"  kernelArguments: [a=1]\n", true)
	if got := reasons(liveVar2); !strings.Contains(got, "is committed and waits for its reboot") {
		t.Errorf("reasons %s", got)
	}
	c.apply(liveVar2, true)
	c.Boot()
	project(t, c.Host)
	if drift := verify(t, c.Host); drift != "" || string(c.Read("/var/opt/app/conf")) != "two" || !strings.Contains(c.outside(), "core:$y$two") {
		t.Errorf("drift %s, there is\n%s", drift, c.outside())
	}
	// If the present entries cannot be projected, a change could not be taken back.
	shell(t, c.Host, "echo '{\"format\":1}' >var/lib/pivot/projection/record.json")
	if got := reasons(liveVar1); !strings.Contains(got, "not all is there that this system asks for outside of /etc") {
		t.Errorf("reasons %s", got)
	}
}

// TestLivePassword (P56): a change of a password excludes other programs that change accounts,
// keeps their lines, and names a missing user before anything is changed.
func TestLivePassword(t *testing.T) {
	c := newVarChanger(t)
	const spec = "  config: {ignition: {version: 3.4.0}, passwd: {users: [{name: core, passwordHash: $y$one}]}}\n"
	// As lckpwdf(3) does.
	lock, err := os.OpenFile(c.Path("/etc/.pwd.lock"), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	must(t, unix.FcntlFlock(lock.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		time.Sleep(300 * time.Millisecond) // the change waits for the lock
		c.Write("/etc/shadow", []byte("new:x:::::::\n"+shadowLines))
		_ = lock.Close()
	}()
	c.apply(spec, true)
	<-changed
	if got := string(c.Read("/etc/shadow")); !strings.Contains(got, "new:x:") || !strings.Contains(got, "core:$y$one:") || !strings.Contains(got, "last:$y$kept:1:") {
		t.Errorf("/etc/shadow is\n%s", got)
	}
	c.Write("/etc/shadow", []byte("root:*:1::::::\n"))
	before := c.outside()
	if _, err := c.story(spec).Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "cannot set the password of core: /etc/shadow has no line for this user") || c.outside() != before {
		t.Errorf("error %v, there is\n%s", err, c.outside())
	}
	if day2.LiveInterrupted(c.Root) {
		t.Error("a journal is left")
	}
}
