package rehearse_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
	"machine-pivot/test/tools/need"
)

// kernel returns a change that gives a tree a kernel with files, and modprobe and an initramfs.
func (w *world) kernel(a act, initramfs []byte, files map[string]string) func(string) {
	return func(tree string) {
		w.put(tree, "usr/sbin/modprobe", w.actor, a)
		all := map[string]string{"vmlinuz": "x", "initramfs.img": string(initramfs), "modules.dep.bin": "x", "kernel/x.ko": "x"}
		for name, content := range files {
			all[name] = content
		}
		for name, content := range all {
			name = filepath.Join(tree, "usr/lib/modules/6.12.0", name)
			w.must(os.MkdirAll(filepath.Dir(name), 0o755))
			w.must(os.WriteFile(name, []byte(content), 0o644))
		}
	}
}

// initramfs returns one with kernel modules, and dracut's list of its own.
func initramfs(dracut string, modules ...string) []byte {
	var files [][2]string
	for _, name := range modules {
		files = append(files, [2]string{"usr/lib/modules/6.12.0/kernel/" + name + ".ko.zst", "x"})
	}
	if dracut != "" {
		files = append(files, [2]string{"usr/lib/dracut/modules.txt", strings.ReplaceAll(dracut, " ", "\n")})
	}
	return cpio(files...)
}

// cpio returns an archive of files, each with its name and content.
func cpio(files ...[2]string) []byte {
	var out bytes.Buffer
	for _, f := range append(files, [2]string{"TRAILER!!!"}) {
		fmt.Fprintf(&out, "070701%s%08x%s%08x%08x%s\x00", strings.Repeat("0", 48), len(f[1]), strings.Repeat("0", 32), len(f[0])+1, 0, f[0])
		out.Write(make([]byte, -out.Len()&3))
		out.WriteString(f[1])
		out.Write(make([]byte, -out.Len()&3))
	}
	return out.Bytes()
}

// TestEarly (P100): what / needs before it is mounted, and today's initramfs has, is in the new one or built in.
func TestEarly(t *testing.T) {
	w := newWorld(t)
	facts := rehearse.Facts{
		Devices:     []rehearse.Device{{Alias: "pci:nvme", Below: "/", Modules: []string{"nvme"}}, {Alias: "pci:x", Below: "/boot", Modules: []string{"x"}}},
		FileSystems: []rehearse.FileSystem{{At: "/", Type: "xfs", Modules: []string{"xfs"}, On: []string{"crypt"}}, {At: "/srv", Type: "btrfs", Modules: []string{"btrfs"}}},
	}
	all := act{Do: "modprobe", Known: []string{"pci:nvme", "nvme", "pci:x", "fs-xfs", "xfs", "fs-btrfs"}, Answers: map[string]string{"pci:nvme": "nvme", "nvme": "nvme", "fs-xfs": "xfs", "xfs": "xfs"}}
	two := act{Do: all.Do, Known: all.Known, Answers: maps.Clone(all.Answers)}
	two.Answers["pci:nvme"] = "nvme\nother"
	complains := act{Do: all.Do, Known: all.Known, Answers: maps.Clone(all.Answers)}
	complains.Answers["pci:nvme"] = "libkmod: ERROR: ctx=0x1 path=/lib/modules/6.12.0/kernel/nvme-core.ko error=No such file or directory\nnvme"
	opens := func(dracut string, modules ...string) []byte {
		return append(cpio([2]string{"usr/lib/systemd/systemd-cryptsetup", "x"}), initramfs(dracut, modules...)...)
	}
	whole := opens("base crypt network-legacy", "nvme", "xfs")
	running := w.commit(w.kernel(all, whole, nil))
	lacks := func(what string) string { return "the new initramfs lacks dracut's module " + what }
	for _, c := range []struct {
		name    string
		next    func(string)
		running ostree.Checksum
		line    string
		refused []string
		note    string // part of the only one; "": none
	}{
		{"it has all", w.kernel(all, whole, nil), running, "ip=dhcp", nil, ""},
		{"no module for the disk", w.kernel(all, opens("base crypt", "xfs"), nil), running, "", []string{"/ stands on a device, and the new initramfs lacks its driver (pci:nvme, by nvme)"}, ""},
		{"neither of two modules for the disk", w.kernel(two, opens("base crypt", "xfs"), nil), running, "", []string{"/ stands on a device, and the new initramfs lacks its driver (pci:nvme, by nvme, other)"}, ""},
		{"one that the module for the disk depends on", w.kernel(complains, opens("base crypt", "nvme-core", "xfs"), nil), running, "", []string{"/ stands on a device, and the new initramfs lacks its driver (pci:nvme, by nvme)"}, ""},
		{"none for the file system, nor for LUKS", w.kernel(all, initramfs("base", "nvme"), nil), running, "", []string{"/ is a file system, and the new initramfs lacks its driver (xfs, by xfs)", lacks("crypt, which today's has (/ stands on it)")}, ""},
		{"LUKS, and no program for it", w.kernel(all, initramfs("base crypt", "nvme", "xfs"), nil), running, "", []string{lacks("systemd-cryptsetup, which today's has (/ stands on it)")}, ""},
		{"built in", w.kernel(all, opens("base crypt", "nvme"), map[string]string{"modules.builtin": "kernel/fs/xfs/xfs.ko\nkernel/x-y.ko\n"}), running, "", nil, ""},
		{"today's lacks it, too", w.kernel(all, initramfs("base", "xfs"), nil), w.commit(w.kernel(all, initramfs("base", "xfs"), nil)), "", nil, ""},
		{"no network", w.kernel(all, opens("base crypt", "nvme", "xfs"), nil), running, "ip=dhcp rd.luks.name=x rd.md=0 rd.lvm.lv=a/b", nil, "warning: " + lacks("network, which today's has (kernel argument ip=)")},
		{"another program for the network", w.kernel(all, opens("base crypt systemd-networkd", "nvme", "xfs"), nil), running, "ip=dhcp", nil, ""},
		{"not dracut's", w.kernel(all, initramfs("", "nvme", "xfs"), nil), running, "ip=dhcp", nil, ""},
		{"one that cannot be read", w.kernel(all, []byte("no initramfs at all"), nil), running, "", nil, "cannot read the initramfs of kernel 6.12.0: it is compressed in an unknown way"},
		{"today's cannot be read", w.kernel(all, initramfs("base", "xfs"), nil), w.commit(w.kernel(all, []byte("no initramfs at all"), nil)), "", nil, "cannot read the initramfs"},
		{"no file system of /", w.kernel(act{Do: "modprobe", Known: []string{"pci:nvme", "pci:x"}}, whole, nil), running, "", []string{"/ is a file system for which the new kernel, 6.12.0, has no driver (xfs, today of xfs)"},
			"warning: /srv is a file system for which the new kernel, 6.12.0, has no driver (btrfs, today of btrfs)"},
	} {
		found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: w.commit(c.next), Running: c.running, Line: kargs.Split(c.line)}, facts)
		w.must(err)
		w.found(c.name, found, c.refused, c.note)
	}
	found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: w.commit(w.kernel(all, initramfs("base"), nil)), Running: running, Rebuilt: true}, facts)
	w.must(err)
	w.found("rebuilt on the machine", found, nil, "")
}

// TestOnePath (P100): without multipath, a system starts from one path, unless / is named by its map, or LVM or md is on that.
func TestOnePath(t *testing.T) {
	w := newWorld(t)
	answers := map[string]string{"dm-multipath": "dm_multipath", "fs-xfs": "xfs", "xfs": "xfs", "dm_multipath": "dm_multipath"}
	all := act{Do: "modprobe", Known: slices.Sorted(maps.Keys(answers)), Answers: answers}
	whole := initramfs("base multipath", "dm-multipath", "xfs")
	running := w.commit(w.kernel(all, whole, nil))
	next := w.commit(w.kernel(all, initramfs("base", "xfs"), nil))
	coreOS := w.commit(w.kernel(all, initramfs("base", "xfs"), map[string]string{"../../systemd/system-generators/coreos-boot-mount-generator": "x"}))
	kernel := w.commit(w.kernel(act{Do: "modprobe", Known: []string{"fs-xfs"}, Answers: answers}, whole, nil))
	driver, module := "/ stands on a device, and the new initramfs lacks its driver (dm-multipath, by dm_multipath)", "the new initramfs lacks dracut's module multipath, which today's has (/ stands on it)"
	both, warned := []string{driver, module}, "warning: "+driver+"\nwarning: "+module
	lost := "/ stands on a device for which the new kernel, 6.12.0, has no driver (dm-multipath, today of dm_multipath)"
	for _, c := range []struct {
		line    string
		on      []string
		next    ostree.Checksum
		refused []string
		note    string
	}{
		{"root=/dev/mapper/mpatha4", []string{"multipath"}, next, both, ""},
		{"root=UUID=1 rd.multipath=default root=/dev/disk/by-label/dm-mpath-root", []string{"multipath"}, next, both, ""},
		{"rd.multipath=default", []string{"multipath"}, next, both, ""},
		{"root=LABEL=root", []string{"crypt", "lvm", "multipath"}, next, both, ""},
		{"root=LABEL=root", []string{"mdraid", "multipath"}, next, both, ""},
		{"root=LABEL=root rd.multipath=default", []string{"multipath"}, coreOS, both, ""},
		{"root=LABEL=root rd.multipath=0", []string{"multipath"}, coreOS, nil, warned},
		{"root=LABEL=root rd.multipath=default", []string{"multipath"}, next, nil, warned},
		{"root=/dev/x root=LABEL=root rd.multipath=0", []string{"multipath"}, next, nil, warned},
		{"root=/dev/mapper/vg-root", []string{"lvm", "crypt", "multipath"}, next, nil, warned},
		{"root=UUID=1", []string{"multipath", "iscsi"}, next, nil, "warning: " + module},
		{"root=/dev/mapper/mpatha4", []string{"multipath"}, kernel, []string{lost}, ""},
		{"root=PARTUUID=1", []string{"multipath"}, kernel, nil, "warning: " + lost},
	} {
		facts := rehearse.Facts{
			Devices:     []rehearse.Device{{Alias: "dm-multipath", Below: "/", Modules: []string{"dm_multipath"}}},
			FileSystems: []rehearse.FileSystem{{At: "/", Type: "xfs", Modules: []string{"xfs"}, On: c.on}},
		}
		for _, line := range []kargs.Line{kargs.Split(c.line), rehearse.Asking(kargs.Split(c.line))} {
			found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: c.next, Running: running, Line: line}, facts)
			w.must(err)
			w.found(line.String(), found, c.refused, c.note)
		}
	}
}

// TestXFS (P100): version 4 of XFS needs a kernel that was built for it.
func TestXFS(t *testing.T) {
	w := newWorld(t)
	block := func(version uint16) []byte {
		b := append([]byte("XFSB"), make([]byte, 508)...)
		binary.BigEndian.PutUint16(b[100:], 0xb4a0|version)
		return b
	}
	for _, c := range []struct {
		at, config string
		version    uint16
		refused    []string
		note       string
	}{
		{"/", "CONFIG_XFS_FS=m\n# CONFIG_XFS_SUPPORT_V4 is not set\n", 4, []string{"/ is a file system in version 4 of XFS, which the new kernel, 6.12.0, does not mount (CONFIG_XFS_SUPPORT_V4)"}, ""},
		{"/srv", "# CONFIG_XFS_SUPPORT_V4 is not set\n", 4, nil, "warning: /srv is a file system in version 4 of XFS"},
		{"/", "# CONFIG_XFS_SUPPORT_V4 is not set\n", 5, nil, ""},
		{"/", "CONFIG_XFS_SUPPORT_V4=y\n", 4, nil, ""},
		{"/", "", 4, nil, ""}, // before 5.10 there is no such option
	} {
		facts := rehearse.Facts{FileSystems: []rehearse.FileSystem{{At: c.at, Type: "xfs", Superblock: block(c.version)}}}
		next := w.commit(w.kernel(act{Do: "modprobe"}, initramfs(""), map[string]string{"config": c.config}))
		found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: next, Running: w.running}, facts)
		w.must(err)
		w.found(fmt.Sprint(c), found, c.refused, c.note)
	}
}

// TestExtFeatures (P100): the real dumpe2fs names what its e2fsck does not know, of a copy of the superblock that the real programs
// have made.
func TestExtFeatures(t *testing.T) {
	for _, name := range []string{"mke2fs", "debugfs", "dumpe2fs", "ldd"} {
		need.Program(t, name)
	}
	w := newWorld(t)
	install := func(tree string) { w.install(tree, "usr/sbin/dumpe2fs") }
	real := w.commit(install)
	knows := w.commit(func(tree string) {
		w.put(tree, "usr/sbin/dumpe2fs", w.actor, act{Say: "Filesystem features:      has_journal orphan_file\nFilesystem flags: x", Status: 1})
	})
	for _, c := range []struct {
		at, block, feature string
		next               ostree.Checksum
		running            ostree.Checksum
		refused            []string
		note               string
	}{
		{"/boot", "4096", "", real, knows, nil, ""},
		{"/boot", "1024", "FEATURE_C14", real, knows, []string{"/boot is a file system (ext4) with features that the new system's e2fsck does not know (FEATURE_C14): it does not check it"}, ""},
		{"/", "4096", "FEATURE_I30", real, knows, []string{"(FEATURE_I30)"}, ""},
		{"/var", "1024", "FEATURE_R20", real, knows, []string{"(FEATURE_R20)"}, ""},
		{"/srv", "4096", "FEATURE_C14", real, knows, nil, "warning: /srv is a file system (ext4) with features"},
		{"/boot", "1024", "FEATURE_C14", real, real, nil, "warning: /boot is a file system (ext4) with features"},
		{"/boot", "4096", "FEATURE_C14", w.running, knows, nil, ""},
	} {
		disk := filepath.Join(t.TempDir(), "disk")
		w.must(os.WriteFile(disk, nil, 0o644))
		w.must(os.Truncate(disk, 16<<20))
		w.do("mke2fs", "-q", "-t", "ext4", "-b", c.block, disk)
		if c.feature != "" {
			w.do("debugfs", "-w", "-R", "feature "+c.feature, disk)
		}
		content, err := os.ReadFile(disk)
		w.must(err)
		facts := rehearse.Facts{FileSystems: []rehearse.FileSystem{{At: c.at, Type: "ext4", Superblock: content[1024:2048]}}}
		found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: c.next, Running: c.running}, facts)
		w.must(err)
		w.found(c.at+" "+c.feature, found, c.refused, c.note)
	}
}

func (w *world) do(program string, args ...string) {
	w.t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// install copies a program of this host, and what it is linked with, into a tree.
func (w *world) install(tree, program string) {
	w.t.Helper()
	from, err := exec.LookPath(filepath.Base(program))
	w.must(err)
	out, err := exec.Command("ldd", from).Output()
	w.must(err)
	copies := map[string]string{from: program}
	for _, field := range strings.Fields(string(out)) {
		if filepath.IsAbs(field) {
			copies[field] = filepath.Join("usr/lib", filepath.Base(field))
			if strings.Contains(field, "/ld-") {
				copies[field] = filepath.Join("usr", field)
			}
		}
	}
	for from, to := range copies {
		content, err := os.ReadFile(from)
		w.must(err)
		to = filepath.Join(tree, to)
		w.must(os.MkdirAll(filepath.Dir(to), 0o755))
		w.must(os.WriteFile(to, content, 0o755))
	}
	_ = os.Symlink("usr/lib64", filepath.Join(tree, "lib64"))
}

// found compares findings: the refusing ones, and the others together.
func (w *world) found(name string, found []verdict.Finding, refused []string, note string) {
	w.t.Helper()
	var bad []string
	others := slices.DeleteFunc(slices.Clone(found), func(f verdict.Finding) bool {
		if f.Weight == verdict.Refused {
			bad = append(bad, f.Text)
		}
		return f.Weight == verdict.Refused
	})
	_, notes, err := verdict.Decide(others, nil)
	matches := len(bad) == len(refused) && err == nil && (note == "") == (len(notes) == 0) && strings.Contains(strings.Join(notes, "\n"), note)
	for i := range bad {
		matches = matches && strings.Contains(bad[i], refused[i])
	}
	for _, f := range found {
		matches = matches && (f.Weight == verdict.Refused) == (f.Remedy != "")
	}
	if !matches {
		w.t.Errorf("%s: refused by\n%s\nnotes\n%s", name, strings.Join(bad, "\n"), strings.Join(notes, "\n"))
	}
}

// TestUnits: programs in /usr of the machine's own services, which the new system does not have, as the real systemd finds them.
func TestUnits(t *testing.T) {
	need.Program(t, "systemd-analyze")
	need.Program(t, "ldd")
	w := newWorld(t)
	next := w.commit(func(tree string) {
		w.install(tree, "usr/bin/systemd-analyze")
		for _, dir := range []string{"usr/lib/systemd/system", "usr/etc/systemd/system", "usr/libexec"} {
			w.must(os.MkdirAll(filepath.Join(tree, dir), 0o755))
		}
		w.must(os.WriteFile(filepath.Join(tree, "usr/lib/systemd/system/sysinit.target"), nil, 0o644))
		w.must(os.WriteFile(filepath.Join(tree, "usr/lib/systemd/system/image.service"), []byte("[Service]\nExecStart=/usr/libexec/old\n"), 0o644))
		w.must(os.WriteFile(filepath.Join(tree, "usr/etc/systemd/system/image.service"), []byte("[Service]\nExecStart=/usr/libexec/older\n"), 0o644))
		w.must(os.Symlink("/run", filepath.Join(tree, "usr/etc/systemd/system/out.service.d")))
	})
	service := func(program string) []byte { return []byte("[Service]\nExecStart=" + program + " --x\n") }
	own := rehearse.Own{
		Files: below("/etc/systemd/system/", map[string][]byte{
			"good.service": service("/usr/bin/true"), "bad.service": service("/usr/libexec/none"), "a@.service": service("/bin/none2"),
			"local.service": service("/usr/local/bin/x"), "var.service": service("/var/x"), "off.service": service("/usr/libexec/off"),
			"image.service": service("/usr/libexec/none3"), "out.service.d/10.conf": service("/usr/libexec/out"),
		}),
		Enabled: []string{"good.service", "bad.service", "a@b.service", "local.service", "var.service", "image.service", "out.service", "others.service", "x.timer"},
	}
	found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: next, Running: w.running, Own: own}, rehearse.Facts{})
	w.must(err)
	var texts []string
	for _, f := range found {
		texts = append(texts, string(f.Name)+": "+f.Text)
	}
	slices.Sort(texts)
	want := []string{"units: a@b.service runs /bin/none2, which the new system does not have", "units: bad.service runs /usr/libexec/none, which the new system does not have",
		"units: image.service runs /usr/libexec/none3, which the new system does not have"}
	if !slices.Equal(texts, want) {
		t.Errorf("found\n%s", strings.Join(texts, "\n"))
	}
}
