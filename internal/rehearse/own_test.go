package rehearse_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/kargs"
)

// below returns files of mode 0644 below a directory.
func below(dir string, files map[string][]byte) map[string]rehearse.File {
	all := map[string]rehearse.File{}
	for name, content := range files {
		all[dir+name] = rehearse.File{Content: content, Mode: 0o644}
	}
	return all
}

// judged expects the texts of what is found, by their beginnings, and that nothing of it refuses.
func (w *world) judged(name string, c rehearse.Change, facts rehearse.Facts, want ...string) {
	w.t.Helper()
	c.Running = w.running
	found, err := w.stage().Judge(w.t.Context(), c, facts)
	w.must(err)
	var texts []string
	for _, f := range found {
		if f.Remedy != "" {
			w.t.Errorf("%s: refused: %s", name, f.Text)
		}
		texts = append(texts, string(f.Name)+": "+f.Text)
	}
	matches := len(texts) == len(want)
	for i := range want {
		matches = matches && strings.HasPrefix(texts[i], want[i])
	}
	if !matches {
		w.t.Errorf("%s: found\n%s\nwanted\n%s", name, strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

// TestHostKeys: a newer sshd refuses a host key with the mode that it has on this machine, or all settings.
func TestHostKeys(t *testing.T) {
	w := newWorld(t)
	w.running = w.commit(func(tree string) { w.put(tree, "usr/sbin/sshd", w.actor, act{Do: "sshd", Known: []string{"0640"}}) })
	plays := func(a act) ostree.Checksum {
		return w.commit(func(tree string) { w.put(tree, "usr/sbin/sshd", w.actor, a) })
	}
	strict, same, none := plays(act{Do: "sshd"}), w.running, w.commit(nil)
	option := plays(act{Say: "/etc/ssh/sshd_config: line 3: Bad configuration option: X\r\n/etc/ssh/sshd_config: terminating, 1 bad configuration options\r", Status: 255})
	keys := func(modes ...uint32) rehearse.Own {
		o := rehearse.Own{Files: map[string]rehearse.File{"/etc/ssh/sshd_config": {Content: []byte("# ours\n"), Mode: 0o600}}}
		for i, mode := range modes {
			o.Files["/etc/ssh/ssh_host_"+string(rune('a'+i))+"_key"] = rehearse.File{Content: []byte("secret"), Mode: mode, GID: 999}
		}
		return o
	}
	const open = "does not use a host key of this machine: Permissions 0640 for '/etc/ssh/ssh_host_b_key' are too open."
	const dead = "does not start with this machine's settings and host keys, so nobody can log in: "
	for _, c := range []struct {
		name string
		next ostree.Checksum
		own  rehearse.Own
		want string
	}{
		{"closed keys", strict, keys(0o600, 0o400), ""},
		{"one open key", strict, keys(0o600, 0o640), open},
		{"only open keys", strict, keys(0o640), dead + "Permissions 0640"},
		{"a release that allows it", same, keys(0o640), ""},
		{"a mode that no release allows", strict, keys(0o600, 0o644), ""}, // nor does the running one
		{"an option", option, keys(0o600), dead + "/etc/ssh/sshd_config: terminating, 1 bad"},
		{"no keys yet", option, keys(), ""},
		{"no sshd", none, keys(0o640), ""},
	} {
		var want []string
		if c.want != "" {
			want = []string{"sshd: the new system's sshd " + c.want}
		}
		w.judged(c.name, rehearse.Change{Next: c.next, Own: c.own}, rehearse.Facts{}, want...)
	}
}

// TestRuntimes: the program by which CRI-O runs containers, of the machine's files and the image's together.
func TestRuntimes(t *testing.T) {
	w := newWorld(t)
	next := w.commit(func(tree string) {
		for name, text := range map[string]string{
			"usr/bin/crun": "", "usr/libexec/crio/kata": "",
			"usr/etc/crio/crio.conf":               "[crio.runtime]\ndefault_runtime = \"runc\"\n",
			"usr/etc/crio/crio.conf.d/10-crun":     "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n",
			"usr/etc/crio/crio.conf.d/50-ours":     "[crio.runtime]\ndefault_runtime = \"none\"\n",
			"usr/etc/crio/crio.conf.d/60-unbroken": "",
		} {
			w.must(os.MkdirAll(filepath.Join(tree, filepath.Dir(name)), 0o755))
			w.must(os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644))
		}
	})
	runtime := func(name string) string { return "[crio.runtime]\ndefault_runtime = \"" + name + "\"\n" }
	at := func(name, path string) string {
		return "[crio.runtime.runtimes." + name + "]\nruntime_path = \"" + path + "\"\n"
	}
	const missing = "cri-o: CRI-O's default_runtime on this machine is "
	for _, c := range []struct {
		name string
		own  map[string]string
		want string
	}{
		{"nothing of the machine", nil, ""},
		{"the image's, in the place of its own", map[string]string{"crio.conf.d/50-ours": ""}, ""},
		{"el9's", map[string]string{"crio.conf.d/99-x": runtime("runc") + at("runc", "/usr/bin/runc")}, missing + "runc (/usr/bin/runc)"},
		{"by its name", map[string]string{"crio.conf.d/99-x": runtime("runc")}, missing + "runc (in no directory of programs)"},
		{"by its name, and found", map[string]string{"crio.conf.d/99-x": runtime("kata")}, ""},
		{"a later file wins", map[string]string{"crio.conf.d/98-x": runtime("runc"), "crio.conf.d/99-x": runtime("crun")}, ""},
		{"the path of an earlier file", map[string]string{"crio.conf.d/98-x": at("x", "/usr/bin/crun"), "crio.conf.d/99-x": runtime("x")}, ""},
		{"a program of the machine", map[string]string{"crio.conf.d/99-x": runtime("x") + at("x", "/usr/local/bin/x")}, ""},
		{"another program of the machine", map[string]string{"crio.conf.d/99-x": runtime("x") + at("x", "/opt/x")}, ""},
		{"not TOML", map[string]string{"crio.conf.d/99-x": "[crio"}, ": cannot read CRI-O's settings in /etc/crio/crio.conf.d/99-x: "},
	} {
		files := map[string][]byte{}
		for name, text := range c.own {
			files[name] = append([]byte{}, text...)
		}
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		w.judged(c.name, rehearse.Change{Next: next, Own: rehearse.Own{Files: below("/etc/crio/", files)}}, rehearse.Facts{}, want...)
	}
}

// TestIfcfg: ifcfg files are read by a plugin of NetworkManager, which newer systems do not have.
func TestIfcfg(t *testing.T) {
	w := newWorld(t)
	with := func(files ...string) ostree.Checksum {
		return w.commit(func(tree string) {
			for _, name := range files {
				w.must(os.MkdirAll(filepath.Join(tree, filepath.Dir(name)), 0o755))
				w.must(os.WriteFile(filepath.Join(tree, name), nil, 0o644))
			}
		})
	}
	el9 := with("usr/lib64/NetworkManager/1.46/libnm-settings-plugin-ifcfg-rh.so", "usr/lib/NetworkManager/conf.d/x")
	el10, other := with("usr/lib64/NetworkManager/1.52/libnm-wifi.so"), with()
	own := rehearse.Own{Files: below("/etc/sysconfig/network-scripts/", map[string][]byte{"ifcfg-lo": nil, "ifcfg-eth0": nil})}
	loopback := rehearse.Own{Files: below("/etc/sysconfig/network-scripts/", map[string][]byte{"ifcfg-lo": nil})}
	const lost = "ifcfg: the new system's NetworkManager does not read ifcfg files: connections that only they have are lost (/etc/sysconfig/network-scripts/ifcfg-eth0;"
	w.running = el9
	w.judged("el10", rehearse.Change{Next: el10, Own: own}, rehearse.Facts{}, lost)
	w.judged("el10, loopback", rehearse.Change{Next: el10, Own: loopback}, rehearse.Facts{})
	w.judged("el9", rehearse.Change{Next: el9, Own: own}, rehearse.Facts{})
	w.judged("another reader", rehearse.Change{Next: other, Own: own}, rehearse.Facts{})
	w.running = el10
	w.judged("from el10", rehearse.Change{Next: el10, Own: own}, rehearse.Facts{})
}

// TestInterfaceNames: interfaces that the new udev names in another way than the running one, unless something else decides.
func TestInterfaceNames(t *testing.T) {
	w := newWorld(t)
	says := func(lines string) ostree.Checksum {
		return w.commit(func(tree string) {
			w.put(tree, "usr/bin/udevadm", w.actor, act{Say: "Using default interface naming scheme 'v250'.\n" + lines})
		})
	}
	const mac, path8, path9 = "ID_NET_NAME_MAC=enx1\n", "ID_NET_NAME_PATH=ens7f0\n", "ID_NET_NAME_PATH=ens7f0np0\n"
	w.running = says(mac + path8)
	facts := rehearse.Facts{Interfaces: []string{"ens7f0"}}
	link := func(name string) rehearse.Own {
		return rehearse.Own{Files: below("/etc/systemd/network/", map[string][]byte{"10-nmstate.link": []byte("[Match]\nMACAddress=1\n[Link]\nName=" + name + "\n")})}
	}
	const renamed = "interface-names: the new system's udev calls network interface ens7f0 "
	for _, c := range []struct {
		name  string
		next  string
		facts rehearse.Facts
		line  kargs.Line
		own   rehearse.Own
		want  string
	}{
		{"the same", mac + path8, facts, nil, rehearse.Own{}, ""},
		{"of a new scheme", mac + path9, facts, nil, rehearse.Own{}, renamed + "ens7f0np0: "},
		{"of another kind", mac + path8 + "ID_NET_NAME_SLOT=eno1\n", facts, nil, rehearse.Own{}, renamed + "eno1: "},
		{"of its hardware only", mac, facts, nil, rehearse.Own{}, ""},
		{"that something else has named", mac + path9, rehearse.Facts{Interfaces: []string{"lan"}}, nil, rehearse.Own{}, ""},
		{"in a .link file", mac + path9, facts, nil, link("ens7f0"), ""},
		{"in one for another", mac + path9, facts, nil, link("ens7"), renamed},
		{"of the kernel", mac + path9, facts, kargs.Line{"net.ifnames=0"}, rehearse.Own{}, ""},
		{"none that is up", mac + path9, rehearse.Facts{}, nil, rehearse.Own{}, ""},
	} {
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		w.judged(c.name, rehearse.Change{Next: says(c.next), Line: c.line, Own: c.own}, c.facts, want...)
	}
}

// TestPatterns: the files of a machine that are asked about are matched by patterns of absolute paths below /etc.
func TestPatterns(t *testing.T) {
	for _, pattern := range rehearse.Patterns() {
		if _, err := filepath.Match(pattern, ""); err != nil || !strings.HasPrefix(pattern, "/etc/") {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	if all := rehearse.Patterns(); !slices.Contains(all, "/etc/ssh/ssh_host_*_key") || slices.Contains(all, "/etc/shadow") {
		t.Errorf("asked about %q", all)
	}
}
