package stories_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// contributor adds entries and has no checks.
type contributor []hostfiles.File

func (c contributor) Entries() ([]hostfiles.File, error) { return c, nil }

func (contributor) Check(pivot.Plan, []hostfiles.File) ([]string, error) { return nil, nil }

func (contributor) Drift(pivot.State, pivot.Target) ([]pivot.Difference, error) { return nil, nil }

// configured returns a host with an additional user in its next system, and its first boot with the given entries.
func configured(t *testing.T, entries ...hostfiles.File) (*hostdir.Host, firstboot.FirstBoot) {
	t.Helper()
	h := hostdir.New(t)
	h.Write("/etc/passwd", []byte("admin:x:1001:1001::/:/bin/sh\n"))
	h.PutIntoNext(map[string]string{"usr/lib/passwd": "chrony:x:994:993::/:/sbin/nologin\n", "usr/etc/group": "wheel:x:10:\n"})
	h.Serve(h.NativeImage())
	ask(t, h)
	m := newMachine(t, h)
	m.Contributors = []pivot.Contributor{contributor(entries)}
	return h, firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
}

// TestEntriesOfAContributor (P53): entries of a contributor are part of a first boot's one
// transaction. Their owners are users of the new system; they are proven and verified, and
// their drift is named.
func TestEntriesOfAContributor(t *testing.T) {
	key := hostfiles.NewFile("/etc/chrony/key", 0o640, []byte("secret"))
	key.User, key.Group = "chrony", "wheel"
	mine := hostfiles.NewLink("/etc/mine", "chrony/key")
	mine.User = "admin" // a user of this machine
	entries := []hostfiles.File{key, mine, hostfiles.NewDirectory("/etc/chrony", 0o750), hostfiles.Default("/etc/default")}
	h, b := configured(t, entries...)
	h.Write("/etc/default", []byte("changed"))
	again := func() *machine.Machine {
		m := newMachine(t, h)
		m.Contributors = b.Contributors
		return m
	}
	plan, err := b.Plan(t.Context())
	want := []pivot.EntryChange{
		{Path: "/etc/chrony/key", Action: pivot.ChangeCreate},
		{Path: "/etc/mine", Kind: hostfiles.KindLink, Action: pivot.ChangeCreate},
		{Path: "/etc/chrony", Kind: hostfiles.KindDirectory, Action: pivot.ChangeCreate},
		{Path: "/etc/default", Kind: hostfiles.KindDefault, Action: pivot.ChangeRestore},
	}
	if err != nil || !slices.Equal(plan.Entries[len(plan.Entries)-len(want):], want) {
		t.Errorf("plan %+v, %v", plan.Entries, err)
	}
	b.NoReboot = true
	must(t, b.Run(t.Context()))
	h.Boot()
	must(t, (&firstboot.FirstBoot{Machine: again(), File: firstboot.EncapsulatedPath}).Run(t.Context()))
	for path, owner := range map[string]string{"/etc/chrony/key": "994:10", "/etc/mine": "1001:0", "/etc/chrony": "0:0"} {
		if got := ownerOf(t, h, path); got != owner {
			t.Errorf("%s is %s's, want %s", path, got, owner)
		}
	}
	if got := string(h.Read("/etc/default")); got != "default of B.2\n" {
		t.Errorf("the default is %q", got)
	}
	if h.Version() != "B.2" || phase(t, h) != pivot.PhaseDone {
		t.Errorf("version %s, phase %s", h.Version(), phase(t, h))
	}
	m := again()
	if drift, err := m.Verify(t.Context()); err != nil || len(drift) > 0 {
		t.Errorf("drift %q, %v", drift, err)
	}
	must(t, os.Chown(h.Path("/etc/chrony/key"), 0, 10))
	must(t, os.Chmod(h.Path("/etc/chrony"), 0o755))
	must(t, os.WriteFile(h.Path("/etc/default"), []byte("changed again"), 0o644))
	differences, err := m.Verify(t.Context())
	drift := pivot.Texts(differences)
	slices.Sort(drift)
	if want := []string{"directory /etc/chrony: differs", "entry /etc/default: not what the image has", "file /etc/chrony/key: differs"}; err != nil || !slices.Equal(drift, want) {
		t.Errorf("drift %q, %v; want %q", drift, err, want)
	}
}

// TestOwnerThatIsNotThere (P53): an owner that the new system does not have is named before the
// commit.
func TestOwnerThatIsNotThere(t *testing.T) {
	file := hostfiles.NewFile("/etc/x", 0o600, nil)
	file.User = "nobody-knows"
	h, b := configured(t, file)
	err := b.Run(t.Context())
	if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), `cannot give /etc/x its owner: there is no user "nobody-knows" in the new system`) || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	if h.Boot(); h.Version() != "A.1" || h.Read("/etc/x") != nil {
		t.Errorf("version %s", h.Version())
	}
}

// TestWholeMachineConfig (P54): what a MachineConfig asks for below /etc is applied together with
// image and arguments, with one reboot, and is proven.
func TestWholeMachineConfig(t *testing.T) {
	h := hostdir.New(t)
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"spec":{"osImageURL":%q,"kernelArguments":["quiet"],"config":{"ignition":{"version":"3.4.0"},
		"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hello"}}],"directories":[{"path":"/etc/keys","mode":448}],"links":[{"path":"/etc/l","target":"motd"}]},
		"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"},{"name":"b.service","mask":true}]}}}}`, h.Image))
	must(t, boot(t, h))
	if h.Read("/etc/motd") != nil {
		t.Error("the old system's /etc was changed")
	}
	h.Boot()
	must(t, boot(t, h))
	const want = "hello 700 motd /etc/systemd/system/a.service /dev/null\n"
	got := shell(t, h, `cd etc && echo $(cat motd) $(stat -c %a keys) $(readlink l) $(readlink systemd/system/multi-user.target.wants/a.service) $(readlink systemd/system/b.service)`)
	if got != want || h.Version() != "B.2" || phase(t, h) != pivot.PhaseDone {
		t.Errorf("/etc has %q, want %q; version %s, phase %s", got, want, h.Version(), phase(t, h))
	}
	shell(t, h, "rm etc/systemd/system/b.service")
	if got := verify(t, h); got != "link /etc/systemd/system/b.service: missing" {
		t.Errorf("drift %q", got)
	}
}

// TestPassword (P57): core's password is set in its line of the new system's /etc/shadow; the
// other lines stay as they are. A password that is not asked for any more is locked, never
// empty, and one that was changed locally stays.
func TestPassword(t *testing.T) {
	h := hostdir.New(t)
	h.Write("/etc/shadow", []byte("root:!:19000::::::\ncore:*:19000:0:99999:7:::\nother:$6$other:19000:0:99999:7:::\n"))
	shell(t, h, "chmod 640 etc/shadow && chown 0:42 etc/shadow")
	const asked = "  config: {ignition: {version: 3.4.0}, passwd: {users: [{name: core, passwordHash: $y$one}]}}\n"
	plan, err := (&day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc.yaml", Data: []byte("spec:\n" + asked)}}).Plan(t.Context(), day2.RunOptions{})
	if err != nil || len(plan.Entries) != 1 || plan.Entries[0].What() != "create password of core" {
		t.Errorf("plan %+v, %v", plan.Entries, err)
	}
	must := func(spec string) (notes string) {
		t.Helper()
		changed, notes, err := apply(t, h, spec)
		if err != nil || !changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
		return notes
	}
	lines := func() string {
		return shell(t, h, "stat -c '%a %u:%g' etc/shadow; cut -d: -f1,2,4- etc/shadow")
	}
	must(asked)
	shell(t, h, `sed -i 's/^root:!/root:$6$root/' etc/shadow`) // a local change before the next commit
	const others = "640 0:42\nroot:$6$root:::::\n%s:0:99999:7:::\nother:$6$other:0:99999:7:::\n"
	must(fmt.Sprintf("  osImageURL: %s\n", h.Image) + strings.Replace(asked, "one", "two", 1))
	if got, want := lines(), fmt.Sprintf(strings.Replace(others, "root:::::", "root::::::", 1), "core:$y$two"); got != want || h.Version() != "B.2" || strings.Contains(string(h.Read("/etc/shadow")), "two:19000:") {
		t.Errorf("shadow is %s, want %s", got, want)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	shell(t, h, `sed -i 's/y.two/y$mine/' etc/shadow`)
	if drift := verify(t, h); drift != "password of core: differs" {
		t.Errorf("drift %s", drift)
	}
	shell(t, h, `sed -i 's/y.mine/y$two/' etc/shadow`)
	image := fmt.Sprintf("  osImageURL: %s\n", h.Image)
	must(image)
	if got := lines(); !strings.Contains(got, "\ncore:*:0:") {
		t.Errorf("shadow is %s", got)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	must(image + asked)
	shell(t, h, `sed -i 's/y.one/y$mine/' etc/shadow`)
	if notes := must(image + "  kernelArguments: [a=1]\n"); !strings.Contains(notes, "password of core stays, though no MachineConfig asks for it any more: somebody has changed it") ||
		!strings.Contains(lines(), "\ncore:$y$mine:0:") {
		t.Errorf("notes %s, shadow %s", notes, lines())
	}
	shell(t, h, `sed -i /^core:/d etc/shadow`)
	if _, _, err := apply(t, h, image+asked); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "/etc/shadow has no line for this user") {
		t.Errorf("error %v", err)
	}
}

// shell runs a script in the host's root directory.
func shell(t *testing.T, h *hostdir.Host, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = h.Path("/")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

func ownerOf(t *testing.T, h *hostdir.Host, path string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(h.Path(path), &st))
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}

func phase(t *testing.T, h *hostdir.Host) pivot.Phase {
	t.Helper()
	r, err := pivot.JournalIn(h.Root).Load()
	must(t, err)
	return r.Phase
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLargestFile: the largest file that authors' checks accept is applied, and is compared;
// both refuse a larger one.
func TestLargestFile(t *testing.T) {
	h := hostdir.New(t)
	for _, size := range []int{ignition.MaxContent, ignition.MaxContent + 1} {
		spec := withFile("/etc/large", 'x', size)
		_, report := authored.Decode("", []byte("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: a, labels: {machineconfiguration.openshift.io/role: worker}}\nspec:\n"+spec),
			authored.Rules{KernelArguments: kargs.DefaultPolicy()})
		changed, notes, err := apply(t, h, spec)
		if fits := size == ignition.MaxContent; changed != fits || (err == nil) != fits || report.Failed() == fits {
			t.Fatalf("%d bytes: changed %v, %v: %s; for authors: %s", size, changed, err, notes, report)
		}
		if drift := verify(t, h); drift != "" {
			t.Errorf("drift %q", drift)
		}
	}
	h.Write("/etc/large", bytes.Repeat([]byte("y"), ignition.MaxContent))
	if drift := verify(t, h); drift == "" {
		t.Error("no drift, though the file differs")
	}
}

// TestLargestFiles: as many contents as authors' checks accept in a MachineConfig, and in those that are merged for a
// machine, are applied; both refuse more.
func TestLargestFiles(t *testing.T) {
	const half = ignition.MaxContents / 2
	rules := authored.Rules{KernelArguments: kargs.DefaultPolicy()}
	decode := func(specs ...string) (parts []*authored.MachineConfig, report problem.Report) {
		var text strings.Builder
		for n, spec := range specs {
			fmt.Fprintf(&text, "---\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: p%d, labels: {machineconfiguration.openshift.io/role: worker}}\nspec:\n%s", n, spec)
		}
		return authored.Decode("", []byte(text.String()), rules)
	}
	h := hostdir.New(t)
	for _, size := range []int{half, half + 1} {
		fits := size == half
		one, other := withFile("/etc/a", 'x', half), withFile("/etc/b", 'x', size)
		file := strings.TrimSuffix(other[strings.Index(other, "{path:"):], "]}}\n")
		both := strings.Replace(one, "]}}\n", ", "+file+"]}}\n", 1)
		_, report := decode(both)
		changed, notes, err := apply(t, h, both)
		if changed != fits || (err == nil) != fits || report.Failed() == fits {
			t.Errorf("%d bytes: changed %v, %v: %s; for authors: %s", half+size, changed, err, notes, report)
		}
		parts, report := decode(one, other)
		if report.Failed() {
			t.Fatalf("the parts are refused: %s", report)
		}
		merged, err := authored.Merge(parts, authored.Images{})
		must(t, err)
		if report := authored.Check(merged, rules); report.Failed() == fits {
			t.Errorf("%d bytes, merged: %s", half+size, report)
		}
	}
}

// withFile returns a MachineConfig with a file of one repeated byte.
func withFile(path string, b byte, size int) string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(bytes.Repeat([]byte{b}, size)); errors.Join(err, z.Close()) != nil {
		panic("a buffer cannot be written")
	}
	return "  config: {ignition: {version: 3.4.0}, storage: {files: [{path: " + path + ", contents: {compression: gzip, source: \"data:;base64," +
		base64.StdEncoding.EncodeToString(packed.Bytes()) + "\"}}]}}\n"
}

// TestLargestFileLive: a change needs a reboot, whatever the rules say, if its old and new contents together are too
// large for a change of the running system. The plan says so, and the run does that.
func TestLargestFileLive(t *testing.T) {
	for _, path := range []string{"/etc/app/conf", "/opt/app/conf"} {
		c := newVarChanger(t)
		c.Write(disruption.RulesPath, []byte(liveVarRules+"- {path: /etc/app, actions: [{type: None}]}\n"))
		for n, content := range []struct {
			b       byte
			reboots int
		}{{'x', 0}, {'y', 1}} {
			spec := withFile(path, content.b, ignition.MaxContent)
			plan, err := c.story(spec).Plan(t.Context(), day2.RunOptions{})
			must(t, err)
			if reasons := strings.Join(plan.RebootReasons(), "; "); plan.Reboots != content.reboots || strings.Contains(reasons, "too large") != (content.reboots == 1) {
				t.Fatalf("%s, %d: %d reboots: %q", path, n, plan.Reboots, reasons)
			}
			c.when = day2.RebootNever
			if _, err := c.story(spec).Run(t.Context(), day2.RunOptions{}); (err != nil) != (content.reboots == 1) || fault.KindOf(err) == fault.BadInput {
				t.Fatalf("%s, %d, never: %v", path, n, err)
			}
			c.when = day2.RebootLater
			c.apply(spec, content.reboots == 1)
			if content.reboots == 1 {
				c.Boot()
				project(t, c.Host)
			}
			if drift := verify(t, c.Host); drift != "" {
				t.Errorf("%s, %d: drift %q", path, n, drift)
			}
		}
	}
}

// TestSpecialModes: setuid, setgid and sticky bits of a config of Ignition 3.6 are set, below
// /etc and /var; those of an earlier version are refused.
func TestSpecialModes(t *testing.T) {
	spec := func(version string) string {
		return "  config: {ignition: {version: " + version + "}, storage: {files: [{path: /etc/a, mode: 04755}, {path: /var/lib/a, mode: 02711}], " +
			"directories: [{path: /etc/d, mode: 01777}, {path: /var/lib/d, mode: 02770}]}}\n"
	}
	h := projecting(t)
	if changed, _, err := apply(t, h, spec("3.5.0")); changed || err == nil || !strings.Contains(err.Error(), "mode 04755 is beyond 0777") || !strings.Contains(err.Error(), "mode 01777 is beyond 0777") {
		t.Errorf("3.5.0: changed %v, %v", changed, err)
	}
	changed, notes, err := apply(t, h, spec("3.6.0"))
	if err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	project(t, h)
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %q", drift)
	}
	const want = "4755 etc/a\n2711 var/lib/a\n1777 etc/d\n2770 var/lib/d\n"
	if got := shell(t, h, "stat -c '%a %n' etc/a var/lib/a etc/d var/lib/d"); got != want {
		t.Errorf("modes\n%s\nwant\n%s", got, want)
	}
	if changed, notes, err := apply(t, h, spec("3.6.0")); err != nil || changed {
		t.Errorf("again: changed %v, %v: %s", changed, err, notes)
	}
	shell(t, h, "chmod 755 etc/a")
	if drift := verify(t, h); !strings.Contains(drift, "/etc/a") {
		t.Errorf("drift %q", drift)
	}
}

// TestSpecialModeLive: such a bit is set without a reboot, too.
func TestSpecialModeLive(t *testing.T) {
	c := newChanger(t)
	c.when = day2.RebootNever
	c.Write(disruption.RulesPath, []byte("files: [{path: /etc, actions: [{type: None}]}]"))
	c.apply("  config: {ignition: {version: 3.6.0}, storage: {files: [{path: /etc/a, mode: 04755}]}}\n", true)
	if got := shell(t, c.Host, "stat -c '%a' etc/a"); got != "4755\n" {
		t.Errorf("mode %s", got)
	}
}
