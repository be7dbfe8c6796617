package stories_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/configdaemon"
	"machine-pivot/test/worlds/hostdir"
)

// daemonsImage is the image that the machine-config-daemon's hosts have booted.
const daemonsImage = "registry.example/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// clusterConfig returns a MachineConfig as a cluster renders it.
func clusterConfig(name, image string, args string, config string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
		"metadata":{"name":%q,"annotations":{"machineconfiguration.openshift.io/generated-by-controller-version":"x"}},
		"spec":{"kernelArguments":[%s],"kernelType":"default","extensions":[],"fips":false,"osImageURL":%q,"config":{"ignition":{"version":"3.4.0"},%s}}}`, name, args, image, config)
}

const daemonsConfig = `"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 a"]}]},
	"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
		"dropins":[{"name":"10-a.conf","contents":"[Service]\nNice=1\n"}]}]},
	"storage":{"files":[{"path":"/etc/default","mode":384,"contents":{"source":"data:,one"}},{"path":"/etc/deep/er/file","contents":{"source":"data:;base64,dHdv"}},
		{"path":"/usr/local/bin/tool","mode":493,"contents":{"source":"data:,tool"}},{"path":"/opt/data","contents":{"source":"data:,"}}]}`

// daemonOf returns the machine-config-daemon of a host, as the host is now.
func daemonOf(t *testing.T, h *hostdir.Host) configdaemon.Daemon {
	t.Helper()
	booted, err := h.Sysroot().Booted()
	must(t, err)
	_, image, _ := strings.Cut(booted.Origin.ContainerImageReference(), ":")
	return configdaemon.Daemon{Root: h.Root, Image: image, Kargs: h.Options()}
}

// ofDaemon returns a host of the machine-config-daemon that has a MachineConfig, with its argument.
func ofDaemon(t *testing.T, config []byte) *hostdir.Host {
	t.Helper()
	h := projecting(t)
	h.SetOrigin("[origin]\ncontainer-image-reference=ostree-unverified-registry:" + daemonsImage + "\n")
	shell(t, h, "for entry in boot/loader*/entries/*.conf; do sed -i '/^options/s/$/ daemon=1/' $entry; done; "+
		"install -d -m 700 -o 1000 -g 1001 var/home/core/.ssh var/home/core/.ssh/authorized_keys.d; "+
		"printf 'ssh-ed25519 a\\n' >var/home/core/.ssh/authorized_keys.d/ignition; chmod 600 var/home/core/.ssh/authorized_keys.d/ignition; chown 1000:1001 var/home/core/.ssh/authorized_keys.d/ignition")
	h.Write("/proc/cmdline", []byte("BOOT_IMAGE=/x "+h.Options()+"\n"))
	linkVar(t, h)
	d := daemonOf(t, h)
	must(t, d.Install(config))
	mc, err := configdaemon.Parse(config)
	must(t, err)
	must(t, d.Validate(mc)) // the daemon itself is content
	return h
}

// linkVar makes the links of an ostree host into /var, which its images do not have here.
func linkVar(t *testing.T, h *hostdir.Host) {
	t.Helper()
	shell(t, h, "mkdir -p var/usrlocal var/opt; ln -sfn ../var/usrlocal usr/local; ln -sfn var/opt opt; ln -sfn var/home home")
}

// applyHere applies a MachineConfig without a reboot, as an agent does.
func applyHere(t *testing.T, h *hostdir.Host, config []byte) (changed bool, notes string, err error) {
	t.Helper()
	m := newMachine(t, h)
	m.Systemd = &services{}
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			notes += e.Message + "\n"
		}
	}
	h.Reboot = func(context.Context) error { t.Error("it reboots"); return nil }
	a := day2.Apply{Machine: m, Config: day2.Config{File: "mc.json", Data: config}, When: day2.RebootNever}
	changed, err = a.Run(t.Context(), day2.RunOptions{})
	return changed, notes, err
}

func recordedBy(t *testing.T, h *hostdir.Host) machineconfig.Recorder {
	t.Helper()
	s, err := newMachine(t, h).Status(t.Context())
	must(t, err)
	if s.MachineConfig == nil {
		return ""
	}
	return machineconfig.Recorder(s.MachineConfig.RecordedBy)
}

// TestTakeOverAsItIs: a machine of the machine-config-daemon is taken over with the MachineConfig that it
// has. Nothing on it changes but pivot's own files, and all of it is proven from then on.
func TestTakeOverAsItIs(t *testing.T) {
	one := clusterConfig("rendered-1", daemonsImage, `"daemon=1"`, daemonsConfig)
	h := ofDaemon(t, one)
	// All but pivot's files, and the link that enables its unit for what is outside of /etc.
	const list = "find etc/ var/ -mindepth 1 ! -path '*/pivot*' ! -path '*/sysinit.target.wants*' ! -path etc/systemd/system ! -path 'var/lib' -printf '%p %m %U %s %T@ %l\\n' | sort"
	if by := recordedBy(t, h); by != machineconfig.RecordedByDaemon {
		t.Errorf("it is recorded by %q", by)
	}
	shell(t, h, "cp etc/default kept; echo changed >etc/default")
	if drift := verify(t, h); drift != "" { // nothing was asked of pivot yet
		t.Errorf("drift %s", drift)
	}
	shell(t, h, "cp -p kept etc/default; rm kept; chmod 600 etc/default; touch -d @1000 etc/default")
	before := shell(t, h, list)
	changed, notes, err := applyHere(t, h, one)
	if err != nil || !strings.Contains(notes, "taking over from the machine-config-daemon: the machine has its MachineConfig rendered-1") {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	if after := shell(t, h, list); after != before {
		t.Errorf("it changes\n%s to\n%s", before, after)
	}
	if by := recordedBy(t, h); by != machineconfig.RecordedByPivot {
		t.Errorf("afterwards it is recorded by %q", by)
	}
	if drift := verify(t, h); drift != "" {
		t.Errorf("drift %s", drift)
	}
	must(t, os.WriteFile(h.Path("/var/usrlocal/bin/tool"), nil, 0o755))
	shell(t, h, "echo changed >etc/default")
	if drift := verify(t, h); drift != "file /etc/default: differs\nfile /var/usrlocal/bin/tool: differs" {
		t.Errorf("drift %s", drift)
	}
}

// TestTakeOverNeedsAReboot: one that is not what the daemon's record says is refused, if that needs a
// reboot, and nothing of it changes.
func TestTakeOverNeedsAReboot(t *testing.T) {
	one := clusterConfig("rendered-1", daemonsImage, `"daemon=1"`, daemonsConfig)
	h := ofDaemon(t, one)
	shell(t, h, "echo changed >etc/default")
	if _, _, err := applyHere(t, h, one); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "/etc/default") {
		t.Errorf("error %v", err)
	}
	if by := recordedBy(t, h); by != machineconfig.RecordedByDaemon || string(h.Read("/etc/default")) != "changed\n" {
		t.Errorf("it is recorded by %q", by)
	}
}
