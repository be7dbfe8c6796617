package rpmostree_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

// refreshing is the line of ostree --version of a libostree that refreshes SELinux policies.
const refreshing = "  - selinux\n"

// programs are the new system's programs that the refresh runs.
var programs = []string{"usr/sbin/semodule", "usr/sbin/setfiles", "usr/sbin/sefcontext_compile"}

// TestRefreshNeedsSandbox (P51): if there is an SELinux configuration, libostree runs the new system's
// semodule in bubblewrap. Its absence is found before anything is pulled. A system that does not
// need it is not refused.
func TestRefreshNeedsSandbox(t *testing.T) {
	const sandbox = "/usr/bin/bwrap"
	for _, c := range []struct {
		name              string
		config            string // of SELinux; "" if there is none
		version, features string // of libostree
		has               bool
		refused           bool
	}{
		{"enforcing", "SELINUX=enforcing\n", "2022.3", refreshing, false, true},
		{"disabled", "SELINUX=disabled\n", "2025.2", refreshing, false, true},
		{"there", "SELINUX=enforcing\n", "2022.3", refreshing, true, false},
		{"no SELinux", "", "2025.2", refreshing, false, false},
		{"old libostree", "SELINUX=enforcing\n", "2022.2", refreshing, false, false},
		{"libostree without SELinux", "SELINUX=enforcing\n", "2025.2", "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			h.InstallRpmOstree(standin.Control{})
			h.Ostree.Version, h.Ostree.Features = c.version, c.features
			if c.config != "" {
				h.Write("/etc/selinux/config", []byte(c.config))
			}
			if c.has {
				h.Write(sandbox, nil)
			}
			for name, e := range engines(h) {
				err := e.Preflight(t.Context(), pivot.Plan{})
				if !c.refused {
					must(t, err)
					continue
				}
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "has no "+sandbox) || !strings.Contains(fault.HintOf(err), "bubblewrap") {
					t.Errorf("%s: error %v, hint %q", name, err, fault.HintOf(err))
				}
			}
			if len(h.Ostree.Calls) != 0 {
				t.Errorf("calls %q", h.Ostree.Calls)
			}
		})
	}
}

// engines returns all engines for a host, by name.
func engines(h *hostdir.Host) map[string]pivot.Engine {
	var notes string
	plain := rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
	return map[string]pivot.Engine{
		"ostree": &plain, "direct": &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}},
		"beside rpm-ostree": engine(h, false, &notes), "rpm-ostree": engine(h, true, &notes),
	}
}

// TestRefreshNeedsPrograms: the programs that refresh the new system's policy come from the new
// system, and are checked after the import and before the commit.
func TestRefreshNeedsPrograms(t *testing.T) {
	const store = "usr/etc/selinux/targeted/active/modules/100/base/cil"
	for _, c := range []struct {
		name string
		next []string // files of the new system
		want string   // what is missing
	}{
		{"nothing", nil, "semodule"},
		{"no semodule", append([]string{store}, programs[1:]...), "semodule"},
		{"no setfiles", []string{store, programs[0], programs[2]}, "setfiles"},
		{"no sefcontext_compile", []string{store, programs[0], programs[1]}, "sefcontext_compile"},
		{"neither", []string{store, programs[0]}, "setfiles, sefcontext_compile"},
		{"all", append([]string{store}, programs...), ""},
		{"all in /usr/bin", []string{store, "usr/bin/semodule", "usr/bin/setfiles", "usr/bin/sefcontext_compile"}, ""},
		{"no modules to compile", programs[:1], ""},
	} {
		for _, name := range []string{"ostree", "direct", "beside rpm-ostree", "rpm-ostree"} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				sample.Short(t, 8)
				h := hostdir.New(t)
				h.InstallRpmOstree(standin.Control{})
				h.Ostree.Version, h.Ostree.Features = "2025.2", refreshing
				h.Policy()
				h.Write("/usr/bin/bwrap", nil)
				h.ExtendNext(c.next...)
				e, r := engines(h)[name], request(t, h)
				must(t, e.Preflight(t.Context(), pivot.Plan{}))
				err := e.Prepare(t.Context(), r)
				if c.want == "" {
					must(t, err)
					return
				}
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "the new system has no "+c.want+",") || !strings.Contains(fault.HintOf(err), "policycoreutils") {
					t.Errorf("error %v, hint %q", err, fault.HintOf(err))
				}
			})
		}
	}
}

// TestRefreshOfOstree: the real libostree needs its sandbox, or the new system's semodule, exactly
// if an SELinux configuration is merged.
func TestRefreshOfOstree(t *testing.T) {
	need.Ostree(t)
	version, err := exec.Command("ostree", "--version").Output()
	if err != nil || !strings.Contains(string(version), "- selinux") {
		need.Lacking(t, fmt.Sprintf("needs an ostree with SELinux: %v\n%s", err, version))
	}
	for config, fails := range map[string]bool{"": false, "SELINUX=enforcing\n": true, "SELINUX=disabled\n": true} {
		h := hostdir.New(t)
		if config != "" {
			h.Write("/etc/selinux/config", []byte(config))
		}
		// Without a policy, libostree would fail earlier for another reason.
		h.Write("/etc/selinux/targeted/policy/policy.33", nil)
		out, err := exec.Command("ostree", "admin", "deploy", "--sysroot="+h.Physical(), "--os=os", h.PullCommit()).CombinedOutput()
		if (err != nil) != fails || fails && !strings.Contains(string(out), "/usr/bin/bwrap") && !strings.Contains(string(out), "semodule") {
			t.Errorf("with %q: %v\n%s", config, err, out)
		}
	}
}
