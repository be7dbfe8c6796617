package kargs_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

func TestSplitAsTheKernelDoes(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{"  \t\n ", nil},
		{"ro quiet", []string{"ro", "quiet"}},
		{` root=LABEL=root  console=ttyS0 `, []string{"root=LABEL=root", "console=ttyS0"}},
		{`a="b c" d`, []string{`a="b c"`, "d"}},
		{`a='b c'`, []string{"a='b", "c'"}},
		{`"a=b c" d`, []string{`"a=b c"`, "d"}},
		{`acpi_osi="!Windows 2020" x`, []string{`acpi_osi="!Windows 2020"`, "x"}},
		{`a="open to the end`, []string{`a="open to the end`}},
		{`""`, []string{`""`}},
	} {
		if got := kargs.Split(c.line); !got.Equal(c.want) {
			t.Errorf("Split(%q) = %q, want %q", c.line, got, c.want)
		}
	}
}

// TestEqualButOstree: libostree sets ostree= for each deployment.
func TestEqualButOstree(t *testing.T) {
	const line = "ostree=/ostree/boot.1/os/a/0 root=/dev/a rw quiet"
	for other, want := range map[string]bool{
		line: true,
		"root=/dev/a rw ostree=/ostree/boot.0/os/b/1 quiet":      true,
		"root=/dev/a rw quiet":                                   true,
		"ostree=/ostree/boot.1/os/a/0 root=/dev/a quiet rw":      false,
		"ostree=/ostree/boot.1/os/a/0 root=/dev/a rw":            false,
		"ostree=/ostree/boot.1/os/a/0 root=/dev/a rw quiet o=/a": false,
	} {
		a, b := kargs.Split(line), kargs.Split(other)
		if a.EqualButOstree(b) != want || b.EqualButOstree(a) != want {
			t.Errorf("%q equals %q but for ostree=: want %v", line, other, want)
		}
	}
}

// TestApply (P22, P21, P19): arguments of a repeated key keep their order.
func TestApply(t *testing.T) {
	for _, c := range []struct {
		name, booted   string
		old, new, del  string
		final          string
		appended, gone string
	}{
		{name: "nothing asked", booted: "root=/dev/vda rw ostree=/x", final: "root=/dev/vda rw ostree=/x"},
		{name: "append", booted: "rw ostree=/x", new: "nosmt loglevel=7", final: "rw ostree=/x nosmt loglevel=7", appended: "nosmt loglevel=7"},
		{name: "there already, another order", booted: "b=2 rw a=1", new: "a=1 b=2", final: "b=2 rw a=1"},
		{name: "quoted value round trip", booted: `rw`, new: `acpi_osi="!Windows 2020"`, final: `rw acpi_osi="!Windows 2020"`, appended: `acpi_osi="!Windows 2020"`},
		{name: "a value hides a flag of the same key", booted: "nosmt=force", new: "nosmt", final: "nosmt=force nosmt", appended: "nosmt"},
		{name: "a part of another value is not the argument", booted: "mitigations=auto,nosmt", new: "nosmt", final: "mitigations=auto,nosmt nosmt", appended: "nosmt"},
		{name: "a later value wins, so it must come last", booted: "loglevel=7 loglevel=3", new: "loglevel=7", final: "loglevel=3 loglevel=7", appended: "loglevel=7", gone: "loglevel=7"},
		{name: "the last console is /dev/console", booted: "console=tty0 console=ttyS0", new: "console=tty0", final: "console=ttyS0 console=tty0", appended: "console=tty0", gone: "console=tty0"},
		{name: "consoles exchanged", booted: "console=tty0 rw console=ttyS0", old: "console=tty0 console=ttyS0", new: "console=ttyS0 console=tty0", final: "rw console=ttyS0 console=tty0", appended: "console=tty0", gone: "console=tty0"},
		{name: "no console left of several", booted: "console=tty0 rw console=ttyS0", old: "console=tty0 console=ttyS0", final: "rw", gone: "console=tty0 console=ttyS0"},
		{name: "another network interface", booted: "ip=eth0:dhcp rw ip=eth9:dhcp", old: "ip=eth0:dhcp", new: "ip=eth0:dhcp ip=eth1:dhcp", final: "ip=eth0:dhcp rw ip=eth9:dhcp ip=eth1:dhcp", appended: "ip=eth1:dhcp"},
		{name: "order of consoles", booted: "console=ttyS0 rw", new: "console=tty0 console=ttyS0", final: "rw console=tty0 console=ttyS0", appended: "console=tty0 console=ttyS0", gone: "console=ttyS0"},
		{name: "huge pages keep their order", booted: "rw", new: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", final: "rw hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", appended: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6"},
		{name: "huge pages half there", booted: "hugepagesz=2M rw", new: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", final: "rw hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", appended: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", gone: "hugepagesz=2M"},
		{name: "one pool of huge pages changes", booted: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4", old: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4", new: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6",
			final: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", appended: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", gone: "hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=4"},
		{name: "a pool of huge pages is specified once", booted: "hugepagesz=2048K hugepages=4 rw hugepagesz=1G hugepages=1", new: "hugepagesz=2M hugepages=6",
			final: "rw hugepagesz=1G hugepages=1 hugepagesz=2M hugepages=6", appended: "hugepagesz=2M hugepages=6", gone: "hugepagesz=2048K hugepages=4"},
		{name: "one pool of huge pages goes", booted: "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4", old: "hugepagesz=1G hugepages=4", final: "hugepagesz=2M hugepages=4", gone: "hugepagesz=1G hugepages=4"},
		{name: "huge pages of the default size come first", booted: "hugepagesz=1G hugepages=4 rw", new: "hugepages=8", final: "rw hugepages=8 hugepagesz=1G hugepages=4", appended: "hugepages=8 hugepagesz=1G hugepages=4", gone: "hugepagesz=1G hugepages=4"},
		{name: "another default size", booted: "default_hugepagesz=2M rw", new: "default_hugepagesz=1G hugepagesz=1G hugepages=4",
			final: "rw default_hugepagesz=1G hugepagesz=1G hugepages=4", appended: "default_hugepagesz=1G hugepagesz=1G hugepages=4", gone: "default_hugepagesz=2M"},
		{name: "crash kernels high and low", booted: "crashkernel=1G,high crashkernel=64M,low rw", old: "crashkernel=1G,high", new: "crashkernel=2G,high", final: "crashkernel=64M,low rw crashkernel=2G,high", appended: "crashkernel=2G,high", gone: "crashkernel=1G,high"},
		{name: "a crash kernel that is high without a size is another kind", booted: "crashkernel=1G crashkernel=,high", new: "crashkernel=1G", final: "crashkernel=1G crashkernel=,high"},
		{name: "one of two that ask for the same", booted: "nosmt rw", old: "nosmt nosmt", new: "nosmt", final: "nosmt rw"},
		{name: "the same twice is once", booted: "rw", new: "nosmt nosmt", final: "rw nosmt", appended: "nosmt"},
		{name: "old goes, each instance", booted: "a=1 rw a=1", old: "a=1", final: "rw", gone: "a=1 a=1"},
		{name: "old goes, a multipath root", booted: "root=UUID=x rw root=/dev/disk/by-label/dm-mpath-root", old: "root=/dev/disk/by-label/dm-mpath-root", final: "root=UUID=x rw", gone: "root=/dev/disk/by-label/dm-mpath-root"},
		{name: "old and new keep", booted: "a=1 rw", old: "a=1", new: "a=1", final: "a=1 rw"},
		{name: "old value replaced", booted: "a=1 rw", old: "a=1", new: "a=2", final: "rw a=2", appended: "a=2", gone: "a=1"},
		{name: "old is not there", booted: "rw", old: "a=1", final: "rw"},
		{name: "old never takes the root", booted: "root=/dev/vda ostree=/x", old: "root=/dev/vda ostree=/x", final: "root=/dev/vda ostree=/x"},
		{name: "delete by value", booted: "a=1 a=2 rw", del: "a=1", final: "a=2 rw", gone: "a=1"},
		{name: "delete by key", booted: "a=1 rw", del: "a", final: "rw", gone: "a=1"},
		{name: "delete a pool of huge pages", booted: "root=x hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=4", del: "hugepagesz=2M hugepages=4", final: "root=x hugepagesz=1G hugepages=4", gone: "hugepagesz=2M hugepages=4"},
		{name: "delete a pool without its number", booted: "hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=8", del: "hugepagesz=1G", final: "hugepagesz=2M hugepages=4", gone: "hugepagesz=1G hugepages=8"},
		{name: "delete a pool by another spelling of its size", booted: "hugepagesz=2048K hugepages=4 rw", del: "hugepagesz=2M hugepages=4", final: "rw", gone: "hugepagesz=2048K hugepages=4"},
		{name: "delete a pool with another number", booted: "hugepagesz=2M hugepages=4", del: "hugepagesz=2M hugepages=6", final: "hugepagesz=2M hugepages=4"},
		{name: "delete the pool of the default size", booted: "hugepages=4 hugepagesz=1G hugepages=4", del: "hugepages=4", final: "hugepagesz=1G hugepages=4", gone: "hugepages=4"},
		{name: "a number alone is that of the default size", booted: "hugepagesz=1G hugepages=4", del: "hugepages=4", final: "hugepagesz=1G hugepages=4"},
		{name: "delete a pool, but for the number that is wanted", booted: "hugepagesz=2M hugepages=4 rw", new: "hugepagesz=2M hugepages=6", del: "hugepagesz=2M", final: "rw hugepagesz=2M hugepages=6", appended: "hugepagesz=2M hugepages=6", gone: "hugepagesz=2M hugepages=4"},
		{name: "delete what is not there", booted: "rw", del: "quiet", final: "rw"},
		{name: "what is deleted and wanted is wanted", booted: "a=1 rw", new: "a=1", del: "a=1", final: "a=1 rw"},
		{name: "a key is deleted, but for the value that is wanted", booted: "a=1 a=2 rw", new: "a=1", del: "a", final: "a=1 rw", gone: "a=2"},
		{name: "one spelling deleted, another wanted", booted: "log-buf-len=1M rw", new: "log-buf-len=1M", del: "log_buf_len=1M", final: "log-buf-len=1M rw"},
		{name: "init's arguments stay last", booted: "rw -- single", new: "quiet", final: "rw quiet -- single", appended: "quiet"},
		{name: "the token of a first boot stays", booted: "$ignition_firstboot rw", new: "quiet", final: "$ignition_firstboot rw quiet", appended: "quiet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := kargs.Change{Old: kargs.Split(c.old), New: kargs.Split(c.new), Delete: kargs.Split(c.del)}
			r := apply(t, change, c.booted, c.final, c.appended, c.gone)
			for _, same := range []kargs.Change{change, {New: change.New, Delete: change.Delete}} {
				if again, err := same.Apply(r.Final); err != nil || again.Changed {
					t.Errorf("a second run of %+v changes %q to %q (%v)", same, r.Final, again.Final, err)
				}
			}
		})
	}
}

// apply applies a change to a line, and compares the result with what is expected.
func apply(t *testing.T, change kargs.Change, booted, final, appended, gone string) kargs.Result {
	t.Helper()
	r, err := change.Apply(kargs.Split(booted))
	if err != nil {
		t.Fatal(err)
	}
	if r.Final.String() != final || r.Appended.String() != appended || r.Deleted.String() != gone {
		t.Errorf("final %q, appended %q, deleted %q; want %q, %q, %q", r.Final, r.Appended, r.Deleted, final, appended, gone)
	}
	if r.Changed != (final != booted) {
		t.Errorf("changed is %v", r.Changed)
	}
	return r
}

// TestSpelling: an argument in another spelling takes effect as requested. So it is not a change by itself; but the
// next line that is written has the requested spelling, because other tools compare literally.
func TestSpelling(t *testing.T) {
	for _, c := range []struct {
		name, booted, new   string
		final, respelled    string
		appended, gone      string
		differsInMeaningToo bool
	}{
		{name: "dash and underscore", booted: "rw log-buf-len=1M quiet", new: "log_buf_len=1M", final: "rw log_buf_len=1M quiet", respelled: "log_buf_len=1M"},
		{name: "quotes that the kernel strips", booted: `cgroup_no_v1=all rw`, new: `cgroup_no_v1="all"`, final: `cgroup_no_v1="all" rw`, respelled: `cgroup_no_v1="all"`},
		{name: "quotes around all of it", booted: `"acpi_osi=!Windows 2020"`, new: `acpi_osi="!Windows 2020"`, final: `acpi_osi="!Windows 2020"`, respelled: `acpi_osi="!Windows 2020"`},
		{name: "there to the letter too", booted: "a-b=1 a_b=1", new: "a_b=1", final: "a-b=1 a_b=1"},
		{name: "the last one is the one in effect", booted: "a-b=1 rw a-b=1", new: "a_b=1", final: "a-b=1 rw a_b=1", respelled: "a_b=1"},
		{name: "one of a group", booted: "hugepagesz=1G hugepages=4", new: `hugepagesz="1G" hugepages=4`, final: `hugepagesz="1G" hugepages=4`, respelled: `hugepagesz="1G"`},
		{name: "in two spellings, both are written", booted: "a-b=1 rw", new: "a_b=1 a-b=1", final: "a_b=1 rw a-b=1", respelled: "a_b=1", appended: "a-b=1", differsInMeaningToo: true},
		{name: "twice in one spelling, asked in two", booted: "a_b=1 rw a_b=1", new: "a_b=1 a-b=1", final: "a-b=1 rw a_b=1", respelled: "a-b=1"},
		{name: "with a change beside it", booted: "log-buf-len=1M", new: "log_buf_len=1M nosmt", final: "log_buf_len=1M nosmt", respelled: "log_buf_len=1M", appended: "nosmt", differsInMeaningToo: true},
		{name: "not after the separator", booted: "a-b=1 -- a_b=1", new: "a_b=1", final: "a_b=1 -- a_b=1", respelled: "a_b=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, literal := range []bool{false, true} {
				change := kargs.Change{New: kargs.Split(c.new), Literal: literal}
				r, err := change.Apply(kargs.Split(c.booted))
				if err != nil {
					t.Fatal(err)
				}
				if r.Final.String() != c.final || r.Respelled.String() != c.respelled || r.Appended.String() != c.appended || r.Deleted.String() != c.gone {
					t.Errorf("final %q, respelled %q, appended %q, deleted %q; want %q, %q, %q, %q",
						r.Final, r.Respelled, r.Appended, r.Deleted, c.final, c.respelled, c.appended, c.gone)
				}
				if want := c.differsInMeaningToo || literal && c.respelled != ""; r.Changed != want {
					t.Errorf("literal %v: changed is %v", literal, r.Changed)
				}
				change.Literal = true
				if again, err := change.Apply(r.Final); err != nil || again.Changed || !again.Final.Equal(r.Final) {
					t.Errorf("a second run changes %q to %q (%v)", r.Final, again.Final, err)
				}
			}
		})
	}
}

func TestThreadsOff(t *testing.T) {
	for _, c := range []struct {
		line, arg string
		certain   bool
	}{
		{"", "", false}, {"quiet smt-enabled=on", "", false}, {"nosmtp=nosmt", "", false}, {"mitigations=auto", "", false},
		{"nosmt", "nosmt", true}, {"nosmt=force quiet", "nosmt", true}, {"mds=full,nosmt nosmt", "nosmt", true},
		{"smt-enabled=off", "smt-enabled=off", true}, {"smt_enabled=off smt-enabled=2", "", false},
		{"mitigations=auto,nosmt", "mitigations=auto,nosmt", false}, {"mitigations=auto,nosmt mitigations=off", "", false},
		{"l1tf=full,force", "l1tf=full,force", false}, {"l1tf=full", "", false}, {"retbleed=auto,nosmt", "retbleed=auto,nosmt", false},
		{"-- nosmt", "", false},
	} {
		arg, certain := kargs.Split(c.line).ThreadsOff()
		if arg != c.arg || certain != c.certain || kargs.Split(c.line).DisablesThreads() != (arg != "") {
			t.Errorf("%q: %q, %v; want %q, %v", c.line, arg, certain, c.arg, c.certain)
		}
	}
}

func TestDeleteRefuses(t *testing.T) {
	for _, c := range []struct{ booted, del, want string }{
		{"a=1 a=2", "a", "2 values"},
		{"a a=2", "a", "2 values"}, // after the flag, a second run would delete the other
		{"hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=4", "hugepagesz", "2 values"},
		{"root=/dev/vda", "root", "needs it to boot"},
		{"ostree=/x", "ostree=/x", "needs it to boot"},
	} {
		_, err := (kargs.Change{Delete: kargs.Line{c.del}}).Apply(kargs.Split(c.booted))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("deleting %q from %q: %v, want an error with %q", c.del, c.booted, err, c.want)
		}
	}
}

// TestFIPS: as the kernel reads them: the last number counts.
func TestFIPS(t *testing.T) {
	for line, want := range map[string]bool{
		"": false, "fips": false, "fips=": false, "fips=0": false, "fips=1": true, `"fips=1"`: true, `fips="1"`: true,
		"fips=2": true, "fips=0x0": false, "fips=01": true, "fips=yes": false, "fips=1 fips=yes": true,
		"fips=1 fips=0": false, "fips=0 a fips=1": true, "-- fips=1": false, "xfips=1": false,
	} {
		if got := kargs.Split(line).FIPS(); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		entry string
		want  problem.Severity // "" for none
	}{
		{"nosmt", ""}, {`a="b c"`, ""}, {"a=1 b=2", ""}, {"", ""},
		{"rd.multipath=default", ""}, {"rootdelay=3", ""}, {"hugepages=4", ""},
		{"ostree=/x", problem.Error}, {"quiet ostree=/x", problem.Error}, {`"ostree=/x"`, problem.Error},
		{"root=/dev/sda", problem.Error}, {"rd.break", problem.Error}, {"init=/bin/sh", problem.Error},
		{`a="b`, problem.Error}, {"a=\nb", problem.Error}, {"a\tb", problem.Error}, {"a\x7f", problem.Error},
		{"'rd.break'", problem.Error}, {`a="b rd.break"`, problem.Error}, {`a="b init=/bin/sh"`, problem.Error}, {"rdbreak", problem.Error}, {"systemd.break=pre-basic", problem.Error},
		{"--", problem.Error}, {"=x", problem.Error}, {`""`, problem.Error},
		{"a=\xa0b", problem.Error}, {"name=voil\u00e0", problem.Error}, {"\"a=\u00a0b\"", problem.Error}, {"name=caf\u00e9", ""},
		{"1", problem.Error}, {"S", problem.Error}, {"-b", problem.Error}, {"3", ""},
		{"audit=0", problem.Warning}, {"mitigations=off", problem.Warning}, {"selinux=0", problem.Warning},
	} {
		problems := kargs.Check(c.entry)
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("Check(%q) = %v, want none", c.entry, problems)
		case c.want != "" && (len(problems) != 1 || problems[0].Severity != c.want):
			t.Errorf("Check(%q) = %v, want one %s", c.entry, problems, c.want)
		}
	}
}

// TestSensitive: arguments that weaken a machine are always reported.
func TestSensitive(t *testing.T) {
	for _, arg := range []string{
		"pivot.mode=off", "systemd.run=/bin/sh", "systemd.run_success_action=none", "systemd.debug-shell", "systemd.debug_shell=ttyS0",
		"rd.systemd.debug_shell", "rd.systemd.debug-shell=1", "systemd.crash_shell", "systemd.confirm_spawn=1", "systemd.mask=kubelet.service", "systemd.wants=debug-shell.service",
		"nokaslr", "nopti", "pti=off", "nospectre_v1", "nospectre_v2", "spectre_v2=off", "spectre_v2_user=off", "spectre_bhi=off",
		"spec_store_bypass_disable=off", "nospec_store_bypass_disable", "l1tf=off", "mds=off", "tsx_async_abort=off",
		"mmio_stale_data=off", "srbds=off", "retbleed=off", "spec_rstack_overflow=off", "gather_data_sampling=off",
		"reg_file_data_sampling=off", "indirect_target_selection=off", "tsa=off", "vmscape=off", "kvm.nx_huge_pages=off",
		"kvm-intel.vmentry_l1d_flush=never", "nosmep", "nosmap", "noexec=off", "rodata=off", "vsyscall=emulate",
		"iommu=off", "intel_iommu=off", "amd_iommu=off", "ima_appraise=fix", "ima-appraise=log", "evm=fix", "security=none",
		"apparmor=0", "ostree.prepare-root.composefs=0", "systemd.verity=no", "sysrq_always_enabled",
		"security=x", "security=", "security=yama", "selinux=+0", "selinux=-0", "selinux=0x0", "enforcing=00", "apparmor=+0", "audit=OFF", "audit=false", "hardened_usercopy=nope", "systemd.verity=f",
		"initcall_blacklist=selinux_init", "systemd.set_credential=a:b", "systemd.set-credential-binary=a:b", "rd.systemd.set_credential=a:b", "systemd.setenv=LD_PRELOAD=/var/x", "LD_PRELOAD=/var/x.so", "GLIBC_TUNABLES=a", "SYSTEMD_UNIT_PATH=/var", "PATH=/var",
		"sysctl.kernel.modprobe=/var/x", "sysctl/kernel/modprobe=/var/x", "sysctl.kernel/core_pattern=|/var/x", "sysctl.kernel.core_pattern=|/var/x", "sysctl.kernel.randomize_va_space=0", "sysctl.kernel/randomize_va_space=+0",
		"systemd.mount-extra=/dev/a:/etc", "fstab=no", "fstab=0", "rd.fstab=off", "clearcpuid=smep", "init_on_alloc=0", "init_on_alloc=n", "iommu.passthrough=1", "iommu.passthrough=y", "kdb", "kgdboc=ttyS0", "kgdboc=kbd",
		"container=docker", "BASH_ENV=/var/x", "ENV=/var/x", "PYTHONPATH=/var", "CREDENTIALS_DIRECTORY=/var", "systemd.swap-extra=/dev/a", "systemd.ssh_listen=vsock::22", "rd.systemd.verity=f",
		"iommu=force,off", "intel_iommu=sm_on,off", "retbleed=auto,off", "ima_appraise=fixed", "noexec=offx", "amd_iommu=pgtbl_v1,off", "iommu.strict=0", "iommu.strict=n", "arm-smmu.disable_bypass=0", "iomem=relaxed", "vsyscall=native",
		"stack_guard_gap=0", "stack_guard_gap=0x0", "hash_pointers=never", "proc_mem.force_override=always", "nopku", "arm64.nobti", "dm_verity.require-signatures=0", "loadpin.enforce=n",
		"sysctl.fs.suid_dumpable=2", "sysctl/fs/binfmt_misc/register=:a:E::a::/a:C", "sysctl.kernel/perf_event_paranoid=-1", "sysctl.vm.unprivileged_userfaultfd=1",
		"lsm=yama", "lockdown=no", "mitigations=auto;no_user_kernel",
		"iommu=pt", "iommu=force,pt", "iommu=ptx", `iommu="pt"`, "iommu=soft", "intel_iommu=on,igfx_off", "intremap=nosidx", "nointremap", "arm-smmu-v3.disable_bypass=n", "pci=noaer,disable_acs_redir=a", "vfio.enable-unsafe-noiommu-mode=y",
		"kvm.nx_huge_pages=never", "norandmapsx", "nosmepx", "nosmapx", "nopkux", "sysrq_always_enabledx", "id_aa64pfr1.bt=0", "arm64_sw.nokaslr=1", "ibt=warn", "slub_debug=P", "ima=off", "no-rfi-flush", "--crash-shell",
		"ostree.prepare-root.composefs=maybe", "systemd.image-policy=*", "sysctl.kernel.perf_event_paranoid=1",
		// Other readers than the kernel's parser.
		`a="b nokaslr c"`, `"a nopti b"`, "'systemd.debug_shell'", "systemd.'debug_shell'", `systemd\.debug_shell`, `a="b systemd.debug_shell"`, `systemd."run"=/bin/sh`, "'mitigations=off'",
	} {
		if problems := kargs.Check(arg); len(problems) != 1 || problems[0].Severity != problem.Warning {
			t.Errorf("Check(%q) = %v, want a warning", arg, problems)
		}
	}
	for _, arg := range []string{"pivot.mode=initramfs", "spectre_v2=on", "mds=full,nosmt", "intel_iommu=on", "iommu=nopt", "intremap=on", "rodata=full", "l1tf=flush", "pti=on", "systemd.unified_cgroup_hierarchy=1",
		"security=selinux", "security=apparmor", "selinux=1", "selinux=+1", "lsm=lockdown,selinux", "lockdown=integrity", "mitigations=auto,nosmt", "init_on_alloc=1", "iommu.passthrough=0", "fstab=yes", "sysctl.kernel.randomize_va_space=2", "sysctl.vm.swappiness=0", "audit=1", "intel_iommu=on,sm_on", "sysctl.kernel.perf_event_paranoid=2", "stack_guard_gap=256", "iommu.strict=1", "HOME=/", `acpi_osi="Windows 1"`, "acpi_osi='Linux'", `dyndbg="file a.c line 1 +p"`, "pci=noaer", "spectre_bhi=on", "kvm.nx_huge_pages=force", "id=1"} {
		if problems := kargs.Check(arg); len(problems) > 0 {
			t.Errorf("Check(%q) = %v, want none", arg, problems)
		}
	}
}

// TestParseLegacy (P23): arguments can be deleted too.
func TestParseLegacy(t *testing.T) {
	change, err := kargs.ParseLegacy("# tuned\nADD nosmt\r\n\n  ADD  acpi_osi=\"!Windows 2020\" \nDELETE quiet\n")
	if err != nil || change.New.String() != `nosmt acpi_osi="!Windows 2020"` || change.Delete.String() != "quiet" || change.Old != nil {
		t.Errorf("%+v %v", change, err)
	}
	_, err = kargs.ParseLegacy("add nosmt\nADD\nADD a b\nREMOVE x\nADD fine\nADDnosmt")
	for _, line := range []string{"line 1: ", "line 2: ", "line 3: ", "line 4: ", "line 6: "} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("no %q in %v", line, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "line 5") {
		t.Error(err)
	}
}

func FuzzParseLegacy(f *testing.F) {
	f.Add("ADD nosmt\nDELETE a=\"b c\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		change, err := kargs.ParseLegacy(text)
		if err != nil {
			return
		}
		var b strings.Builder
		for _, arg := range change.New {
			b.WriteString("ADD " + arg + "\n")
		}
		for _, arg := range change.Delete {
			b.WriteString("DELETE " + arg + "\n")
		}
		again, err := kargs.ParseLegacy(b.String())
		if err != nil || !again.New.Equal(change.New) || !again.Delete.Equal(change.Delete) {
			t.Errorf("%q: %+v, again %+v (%v)", text, change, again, err)
		}
	})
}

func FuzzApply(f *testing.F) {
	f.Add("root=/dev/vda rw ostree=/x", "a=1", "a=2 nosmt")
	f.Add(`a="b c" console=tty0`, "", "console=tty0 console=ttyS0")
	f.Add("hugepages=4 -- x", "x", "hugepagesz=1G hugepages=4")
	f.Fuzz(func(t *testing.T, booted, old, wanted string) {
		line := kargs.Split(booted)
		for _, p := range kargs.Check(wanted) {
			if p.Severity == problem.Error {
				t.Skip()
			}
		}
		change := kargs.Change{Old: kargs.Split(old), New: kargs.Split(wanted)}
		r, err := change.Apply(line)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Final) != len(line)+len(r.Appended)-len(r.Deleted) {
			t.Errorf("%q: %d arguments, +%d -%d, became %d", booted, len(line), len(r.Appended), len(r.Deleted), len(r.Final))
		}
		for _, protected := range []string{"ostree", "root"} {
			if got, want := len(r.Final.Values(protected)), len(line.Values(protected)); got == 0 && want > 0 {
				t.Errorf("%q: the last argument %s is gone", booted, protected)
			}
		}
		for _, arg := range change.New {
			if !slices.Contains(r.Final, arg) {
				t.Errorf("%q + %q: %q is not in %q to the letter", booted, wanted, arg, r.Final)
			}
		}
		for _, same := range []kargs.Change{{New: change.New, Literal: true}, {Old: change.Old, New: change.New, Literal: true}} {
			if again, err := same.Apply(r.Final); err != nil || again.Changed {
				t.Errorf("%q, %q to %q: a second run changes %q to %q (%v)", booted, old, wanted, r.Final, again.Final, err)
			}
		}
	})
}
