package rpmostree_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/fault"
	"machine-pivot/rpmostree"
	"machine-pivot/test/hostdir"
)

// TestDirect: one call makes and commits the deployment; nothing is staged, and the
// running system's /etc is not touched.
func TestDirect(t *testing.T) {
	h := hostdir.New(t)
	e := &rpmostree.Direct{Sysroot: h.Sysroot(), Run: h.Run}
	r := request(t, h)
	must(t, errors.Join(e.Check(t.Context()), e.Prepare(t.Context(), r)))
	if len(h.Ostree.Calls) != 0 {
		t.Errorf("it called %q before the commit", h.Ostree.Calls)
	}
	must(t, e.Commit(t.Context(), r))
	if h.Read("/etc/new") != nil || !slices.Equal(h.Ostree.Calls, []string{"deploy"}) {
		t.Errorf("calls %q, and the old system has %q", h.Ostree.Calls, h.Read("/etc/new"))
	}
	h.Boot()
	booted, err := h.Sysroot().Booted()
	if err != nil || booted.Origin.ContainerImageReference() != container || !strings.HasSuffix(h.Options(), " nosmt") || string(h.Read("/etc/new")) != "x" {
		t.Errorf("origin %s, options %s, %v", booted.Origin.Bytes(), h.Options(), err)
	}
}

// TestDirectLabels: without a policy in the kernel the deployment's configuration
// says whether files get labels, and the paths are those that setfiles sees.
func TestDirectLabels(t *testing.T) {
	const enforcing = "# SELINUX=disabled\nSELINUX=enforcing\nSELINUXTYPE=targeted\n"
	for _, c := range []struct {
		name, config, cmdline string
		setfiles, labels      bool
		want                  string // the error
	}{
		{"on", enforcing, "", true, true, ""},
		{"permissive", strings.Replace(enforcing, "enforcing", "permissive", 1), "", true, true, ""},
		{"disabled", strings.Replace(enforcing, "enforcing", "disabled", 1), "", true, false, ""},
		{"off for this boot", enforcing, " selinux=0", true, false, ""},
		{"no setfiles", enforcing, "", false, false, "no setfiles"},
		{"no policy type", "SELINUX=enforcing\n", "", true, false, "SELINUXTYPE"},
		{"no SELinux", "", "", false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			if c.config != "" {
				h.Write("/etc/selinux/config", []byte(c.config))
				h.Write("/etc/selinux/targeted/contexts/files/file_contexts", nil)
			}
			if c.setfiles {
				h.Write("/usr/sbin/setfiles", nil)
			}
			h.Write("/proc/cmdline", append([]byte(strings.TrimSpace(string(h.Read("/proc/cmdline")))), c.cmdline...))
			var calls [][]string
			enough := errors.New("enough")
			e := &rpmostree.Direct{Sysroot: h.Sysroot(), Run: func(_ context.Context, argv ...string) ([]byte, error) {
				if calls = append(calls, argv); argv[0] == "ostree" {
					return nil, enough
				}
				_, err := os.Stat(filepath.Join(h.Root, argv[len(argv)-1])) // the file is there by then
				return nil, err
			}}
			r := request(t, h)
			if err := e.Prepare(t.Context(), r); c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err := e.Commit(t.Context(), r); !errors.Is(err, enough) {
				t.Errorf("error %v", err)
			}
			deployment := strings.TrimPrefix(h.Root, h.Physical())
			want := []string{"setfiles", "-F", "-r", "/sysroot" + deployment,
				"/sysroot" + deployment + "/etc/selinux/targeted/contexts/files/file_contexts", "/sysroot" + deployment + "/etc/new"}
			if labelled := calls[0][0] == "setfiles"; labelled != c.labels || c.labels && !slices.Equal(calls[0], want) {
				t.Errorf("calls %q, want %q", calls, want)
			}
		})
	}
}

// TestDirectRefuses what only the started system can do, before anything is made.
func TestDirectRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kind       fault.Kind
		prepare    func(h *hostdir.Host)
	}{
		{"layered", "layered", fault.Later, func(h *hostdir.Host) { h.Layer("strace;") }},
		{"zipl", "zipl", fault.Later, func(h *hostdir.Host) {
			h.Write("/sysroot/ostree/repo/config", append(h.Read("/sysroot/ostree/repo/config"), "bootloader=zipl\n"...))
		}},
		{"lock", "holds the lock", fault.Unavailable, func(h *hostdir.Host) { t.Cleanup(h.Lock()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			e, r := &rpmostree.Direct{Sysroot: h.Sysroot(), Run: h.Run}, request(t, h)
			c.prepare(h)
			if err := e.Prepare(t.Context(), r); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if len(h.Ostree.Calls) != 0 {
				t.Errorf("calls %q", h.Ostree.Calls)
			}
		})
	}
	h := hostdir.New(t)
	e, r := &rpmostree.Direct{Sysroot: h.Sysroot(), Run: h.Run}, request(t, h)
	must(t, (&rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}).Prepare(t.Context(), r))
	if err := e.Prepare(t.Context(), r); fault.KindOf(err) != fault.Later || !strings.Contains(err.Error(), "is staged already") {
		t.Errorf("with a staged deployment: %v", err)
	}
	r.Kargs = r.Kargs[1:] // root= is the first
	must(t, (&rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}).Discard(t.Context()))
	if err := e.Prepare(t.Context(), r); err == nil || !strings.Contains(err.Error(), "lack root=") {
		t.Errorf("without root=: %v", err)
	}
}
