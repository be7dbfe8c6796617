package stories_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/disruption"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
)

// user owns /etc/app and /var/data, because a MachineConfig gives them to that user.
const user = 1500

const userRules = `
files:
- path: /etc/app
  actions: [{type: None}]
- path: /var/data
  actions: [{type: None}]
- path: /etc/fails
  actions: [{type: Reload, reload: {serviceName: app.service}}]
`

// usersOwn returns a MachineConfig with directories that belong to the user, with a content that changes and, if it is
// not "", an argument.
func usersOwn(content, argument string) string {
	owner := fmt.Sprintf("user: {id: %d}, group: {id: %d}", user, user)
	file := func(path string) string {
		return fmt.Sprintf("      - {path: %s, %s, contents: {source: \"data:,%s\"}}\n", path, owner, content)
	}
	return fmt.Sprintf("  kernelArguments: [%s]\n  config:\n    ignition: {version: 3.4.0}\n    storage:\n      directories: [{path: /etc/app, %s}, {path: /var/data, %s}, {path: /var/data/conf.d, %s}]\n      files:\n",
		argument, owner, owner, owner) + file("/etc/app/conf.d/50-site.conf") + file("/var/data/conf.d/50-site.conf")
}

// newUsers returns a machine on which the user's directories are as the MachineConfig has them.
func newUsers(t *testing.T) *changer {
	t.Helper()
	need.Root(t)
	c := &changer{Host: projecting(t), services: &services{}, t: t}
	c.Write(disruption.RulesPath, []byte(userRules))
	shell(t, c.Host, "mkdir -p etc/tmpfiles.d var/victim")
	c.when = day2.RebootLater
	c.apply(usersOwn("first", ""), true)
	c.Boot()
	project(t, c.Host)
	must(t, os.Chown(c.Path("/etc/app/conf.d"), user, user)) // the user's own, as the directory above it
	return c
}

// expectSafe checks that nothing is where only root may write, and that no change is unfinished.
func (c *changer) expectSafe() {
	c.t.Helper()
	if got := shell(c.t, c.Host, "ls -A etc/tmpfiles.d var/victim; find etc var/lib/pivot -path etc/app -prune -o -user 1500 -print 2>/dev/null || true"); got != "etc/tmpfiles.d:\n\nvar/victim:\n" {
		c.t.Errorf("root wrote for the user: %s", got)
	}
	if day2.LiveInterrupted(c.Root) {
		c.t.Error("a change is not finished")
	}
}

// obstruction is what a user does in a directory of entries; over is what the user mounts something over.
type obstruction struct{ name, do, over string }

func obstructions() []obstruction {
	return []obstruction{
		{name: "a mount over the directory", do: "mkfifo conf.d/hidden", over: "/conf.d"},
		{name: "a mount over the directory above it", do: "mkfifo conf.d/hidden", over: "/"},
		{name: "a mount over the file", do: "rm conf.d/*; mkdir conf.d/50-site.conf", over: "/conf.d/50-site.conf"},
		{name: "a link in place of the directory", do: "rm -r conf.d && ln -s ../tmpfiles.d conf.d"},
		{name: "a link to itself", do: "rm -r conf.d && ln -s conf.d conf.d"},
		{name: "a link to a directory of root", do: "rm -r conf.d && ln -s /etc conf.d"},
		{name: "a file in place of the directory", do: "rm -r conf.d && touch conf.d"},
		{name: "no directory", do: "rm -r conf.d"},
		{name: "a directory in place of the file", do: "rm conf.d/* && mkdir -p conf.d/50-site.conf/full/of"},
		{name: "a FIFO in place of the file", do: "rm conf.d/* && mkfifo conf.d/50-site.conf"},
		{name: "a large file", do: "truncate -s 17M conf.d/50-site.conf"},
		{name: "files that are together too large", do: "truncate -s 14M conf.d/50-site.conf"},
		{name: "a link in place of the file", do: "ln -sf ../../tmpfiles.d/50-site.conf conf.d/50-site.conf"},
	}
}

// obstructed returns a machine on which the user has done that.
func obstructed(t *testing.T, by obstruction) *changer {
	t.Helper()
	m := newUsers(t)
	for _, dir := range []string{"etc/app", "var/data"} {
		shell(t, m.Host, "cd "+dir+" && setpriv --reuid=1500 --regid=1500 --clear-groups sh -c '"+by.do+"'")
	}
	if by.over != "" {
		mountedBy(t, m.Path("/etc/app"+by.over))
		mountedBy(t, m.Path("/var/data"+by.over))
	}
	return m
}

// TestUsersObstruct: a user who owns a directory of entries puts something in the way.
// The machine can be watched; the change is made all the same, in the running system and by a commit; nothing is followed,
// and nothing of the user's is lost.
func TestUsersObstruct(t *testing.T) {
	for _, c := range obstructions() {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			m := obstructed(t, c)
			watch := day2.Watch{Machine: m.newMachine(), Every: time.Hour, UntilDrift: true, Tell: func([]string) {}}
			watched, err := watch.Run(t.Context())
			must(t, err)
			for _, drift := range []string{verify(t, m.Host), strings.Join(watched, "; ")} {
				if !strings.Contains(drift, "/etc/app/conf.d/50-site.conf") || !strings.Contains(drift, "/var/data/conf.d/50-site.conf") {
					t.Errorf("drift %q", drift)
				}
			}
			m.when = day2.RebootNever
			if _, err := m.story(usersOwn("live", "")).Run(t.Context(), day2.RunOptions{}); err != nil {
				t.Fatalf("live: %v", err)
			}
			m.expectSafe()
			m.when = day2.RebootLater
			m.apply(usersOwn("second", "new=1"), true)
			m.expectSafe()
			unmountBelow(t, m.Path("/etc/app"), m.Path("/var/data"))
			m.Boot()
			notes := project(t, m.Host)
			m.expectSafe()
			for _, path := range []string{"/etc/app/conf.d/50-site.conf", "/var/data/conf.d/50-site.conf"} {
				if got := m.Read(path); string(got) != "second" {
					t.Errorf("%s has %q; %s", path, got, notes)
				}
			}
			if drift := verify(t, m.Host); drift != "" {
				t.Errorf("drift %s", drift)
			}
		})
	}
}

// TestUsersObstructGoesBack: what a user has put in the way stops no change that fails from being
// taken back, and no repair. What cannot be put back is moved aside, and named, and no empty file is in its place.
func TestUsersObstructGoesBack(t *testing.T) {
	for _, c := range obstructions() {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			m := obstructed(t, c)
			aside := func() string {
				return shell(t, m.Host, "find etc/app var/data -name '*50-site.conf' '(' -type p -o -type d -o -size +16M ')' -printf '%i %y %s\\n' 2>/dev/null | sort")
			}
			before := aside()
			m.when = day2.RebootNever
			m.fails = map[string]error{"reload app.service": errors.New("it is broken")}
			failing := usersOwn("fails", "") + "      - {path: /etc/fails, contents: {source: \"data:,fails\"}}\n"
			if _, err := m.story(failing).Run(t.Context(), day2.RunOptions{}); err == nil || !strings.Contains(err.Error(), "it is broken; all of the change is taken back") {
				t.Fatalf("error %v", err)
			}
			m.expectSafe()
			if got := aside(); got != before {
				t.Errorf("aside is %q, want %q", got, before)
			}
			if notes := m.notes; before != "" && c.over == "" && (strings.Count(notes, "is not put back if the change fails: ") != 2 || strings.Count(notes, "50-site.conf was in the way, and is .obstructs-") != 2) {
				t.Errorf("notes %s", notes)
			}
			if got := shell(t, m.Host, "find etc/app var/data -name 50-site.conf -type f -empty 2>/dev/null || true"); got != "" {
				t.Errorf("empty: %s", got)
			}
			m.fails = nil
			repair := m.story("")
			repair.Repair, repair.Config = true, day2.Config{}
			if _, err := repair.Run(t.Context(), day2.RunOptions{}); err != nil {
				t.Errorf("repair: %v", err)
			}
			m.expectSafe()
		})
	}
}

// mountedBy mounts a file system over a directory as fusermount(1) does for the user: it is served by
// nobody, and root may not look into it.
func mountedBy(t *testing.T, dir string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR, 0)
	must(t, err)
	must(t, unix.Mount("test", dir, "fuse", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, user, user)))
	t.Cleanup(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // it may be gone
		must(t, unix.Close(fd))
	})
}

// unmountBelow unmounts what is mounted in directories, as a reboot does.
func unmountBelow(t *testing.T, dirs ...string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		for _, dir := range dirs {
			if dir, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil && strings.HasPrefix(strings.Fields(line)[4], dir+"/") {
				must(t, unix.Unmount(strings.Fields(line)[4], unix.MNT_DETACH))
			}
		}
	}
}

// attacker is a thread with the user's privileges that plays with the user's directories.
type attacker struct {
	stop chan bool
	over sync.WaitGroup
	did  int
}

// attack starts an attacker of a directory, which must belong to the user.
func attack(t *testing.T, dir, victim string) *attacker {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	a := &attacker{stop: make(chan bool)}
	a.over.Add(1)
	go func() {
		defer a.over.Done()
		runtime.LockOSThread() // never unlocked: the thread ends with its privileges
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
			return
		}
		random := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
		for {
			select {
			case <-a.stop:
				return
			default:
				a.play(fd, victim, random)
				a.did++
			}
		}
	}()
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	return a
}

func (a *attacker) end() { close(a.stop); a.over.Wait() }

// play makes one move. Most of them fail, because of the one before.
func (a *attacker) play(fd int, victim string, random *rand.Rand) {
	const file = "conf.d/50-site.conf"
	switch random.IntN(8) {
	case 0: // the directory becomes a link, and comes back
		if unix.Renameat(fd, "conf.d", fd, "away") == nil {
			_ = unix.Symlinkat(victim, fd, "conf.d")
			for range random.IntN(200) {
				runtime.Gosched()
			}
			_ = unix.Unlinkat(fd, "conf.d", 0)
			if unix.Renameat(fd, "away", fd, "conf.d") != nil {
				_ = unix.Renameat(fd, "away", fd, fmt.Sprintf("away-%d", random.Uint64()))
			}
		}
	case 1:
		_ = unix.Unlinkat(fd, file, 0)
		_ = unix.Mkdirat(fd, file, 0o755)
		_ = unix.Mkdirat(fd, file+"/full", 0o755)
	case 2:
		_ = unix.Unlinkat(fd, file, 0)
		_ = unix.Mknodat(fd, file, unix.S_IFIFO|0o600, 0)
	case 3:
		_ = unix.Symlinkat("../"+victim+"/50-site.conf", fd, file)
	case 4: // over what root is writing
		for _, name := range namesIn(fd, "conf.d") {
			if strings.HasPrefix(name, ".") {
				_ = unix.Mknodat(fd, "fifo", unix.S_IFIFO|0o600, 0)
				_ = unix.Renameat(fd, "fifo", fd, "conf.d/"+name)
			}
		}
	case 5:
		if at, err := unix.Openat(fd, file, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0); err == nil {
			_ = unix.Ftruncate(at, 17<<20)
			_ = unix.Close(at)
		}
	case 6:
		_ = unix.Mkdirat(fd, "conf.d", 0o755)
	case 7: // an obstacle that was moved aside comes back
		for _, name := range namesIn(fd, "conf.d") {
			if strings.HasPrefix(name, ".obstructs-") && unix.Renameat(fd, "conf.d/"+name, fd, file) != nil {
				_ = unix.Unlinkat(fd, "conf.d/"+name, 0)
				_ = unix.Unlinkat(fd, "conf.d/"+name+"/full", unix.AT_REMOVEDIR)
				_ = unix.Unlinkat(fd, "conf.d/"+name, unix.AT_REMOVEDIR)
			}
		}
	}
}

func namesIn(fd int, dir string) []string {
	at, err := unix.Openat(fd, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(at), dir)
	defer file.Close()
	all, _ := file.Readdirnames(-1)
	return all
}

// TestUsersAttack: while a user plays with the directories of entries, root makes
// one change after the other: in the running system, by a commit, by a repair. No change hangs,
// none fails, and nothing is written where the user may not write. PIVOT_SWEEP=long makes
// 1,000 rounds of each.
func TestUsersAttack(t *testing.T) {
	rounds := sample.Rounds(8)
	if os.Getenv("PIVOT_SWEEP") == "long" {
		rounds = 1000
	}
	for _, c := range []struct {
		name   string
		change func(m *changer, round int) error
	}{
		{"live", func(m *changer, round int) error {
			m.when = day2.RebootNever
			_, err := m.story(usersOwn(fmt.Sprint("live", round), "")).Run(m.t.Context(), day2.RunOptions{})
			return err
		}},
		{"commit", func(m *changer, round int) error {
			m.when = day2.RebootLater
			_, err := m.story(usersOwn(fmt.Sprint("commit", round), fmt.Sprint("round=", round))).Run(m.t.Context(), day2.RunOptions{})
			return err
		}},
		{"repair", func(m *changer, _ int) error {
			m.when = day2.RebootNever
			s := m.story("")
			s.Repair = true
			_, err := s.Run(m.t.Context(), day2.RunOptions{})
			return err
		}},
		{"verify", func(m *changer, _ int) error {
			machine := m.newMachine()
			_, err := machine.Verify(m.t.Context())
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newUsers(t)
			etc, data := attack(t, m.Path("/etc/app"), "../tmpfiles.d"), attack(t, m.Path("/var/data"), "../victim")
			defer func() {
				etc.end()
				data.end()
				t.Logf("%d rounds, %d and %d moves of the user", rounds, etc.did, data.did)
			}()
			for round := range rounds {
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- c.change(m, round) }()
				select {
				case err := <-ended:
					if err != nil {
						t.Fatalf("round %d, after %v: %v", round, time.Since(began), err)
					}
				case <-time.After(4 * time.Minute):
					t.Fatalf("round %d hangs", round)
				}
				m.expectSafe()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestUsersEditsHoldNothing: what a user edits in own files is drift, which holds no slot.
func TestUsersEditsHoldNothing(t *testing.T) {
	m := newMember(t)
	m.Write(projectUnit, nil)
	spec := usersOwn("one", "new=1")
	machine := m.newMachine()
	ctx := stoppedByReboot(t, machine, m.Host)
	a := day2.Apply{Machine: machine, Config: day2.Config{File: "mc.yaml", Data: []byte("metadata: {name: a}\nspec:\n" + spec)}, When: day2.RebootNow}
	if changed, err := a.Run(ctx, day2.RunOptions{}); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	m.Boot()
	project(t, m.Host)
	path := filepath.Join(m.Path("/etc/app/conf.d/50-site.conf"))
	must(t, errors.Join(os.WriteFile(path, []byte("the user's"), 0o644), os.Truncate(path, 17<<20)))
	if drift := verify(t, m.Host); !strings.Contains(drift, "/etc/app/conf.d/50-site.conf") {
		t.Errorf("drift %q", drift)
	}
	after := m.newMachine()
	if s, err := after.Status(t.Context()); err != nil || s.Phase != pivot.PhaseDone {
		t.Errorf("phase %s, %v", s.Phase, err)
	}
	must(t, m.release())
	if r := m.journal(); slotOf(t, r) != nil {
		t.Errorf("the slot is held: %+v", slotOf(t, r))
	}
}

// TestUsersEditsAtFirstBoot: a first boot is over when its new system has come up, whatever users have done with their
// files meanwhile; what root owns still counts.
func TestUsersEditsAtFirstBoot(t *testing.T) {
	for name, c := range map[string]struct {
		edits   string
		reboots int
	}{
		"a user's": {"echo changed > etc/app/users", 1},
		"root's":   {"echo changed > etc/roots", 2},
	} {
		t.Run(name, func(t *testing.T) {
			need.Root(t)
			h := hostdir.New(t)
			h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"spec": {"osImageURL": %q, "kernelArguments": ["new=1"], "config": {"ignition": {"version": "3.4.0"}, "storage": {
"directories": [{"path": "/etc/app", "user": {"id": 1500}}],
"files": [{"path": "/etc/app/users", "contents": {"source": "data:,one"}}, {"path": "/etc/roots", "contents": {"source": "data:,one"}}]}}}}`, h.Image))
			shell(t, h, "mkdir etc/app && chown 1500 etc/app; printf one > etc/app/users; printf one > etc/roots")
			must(t, boot(t, h))
			h.Boot()
			shell(t, h, c.edits)
			must(t, boot(t, h))
			if h.Reboots != c.reboots {
				t.Errorf("%d reboots, want %d", h.Reboots, c.reboots)
			}
			if drift := verify(t, h); c.reboots == 1 && !strings.Contains(drift, "/etc/app/users") {
				t.Errorf("drift %q", drift)
			}
		})
	}
}
