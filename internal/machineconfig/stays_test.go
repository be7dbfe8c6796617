package machineconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig"
	"machine-pivot/kargs"
)

// unsupported is a value that pivot does not apply, of which $ stands for a part that can change.
type unsupported struct {
	name, spec string // spec of a MachineConfig; %s: kernel arguments, as the start of a list
	at         string // path of the error on a first boot
	first      bool   // whether a first boot accepts it
	change     string // what a change of it is
	gone       string // what giving it up is
}

// TestStays: what stays as the machine's MachineConfig has it is never an error, whatever
// pivot does not support; a change of it is one, or what --unsupported decides.
func TestStays(t *testing.T) {
	config := func(text string) string {
		return `"config":{"ignition":{"version":"3.4.0"},` + text + `},"kernelArguments":[%s]`
	}
	user := func(text string) string { return config(`"passwd":{"users":[{` + text + `}]}`) }
	core := func(text string) string { return user(`"name":"core","sshAuthorizedKeys":["ssh-ed25519 A"],` + text) }
	storage := func(kind, text string) string { return config(`"storage":{"` + kind + `":[{` + text + `}]}`) }
	unit := func(text string) string { return config(`"systemd":{"units":[{` + text + `}]}`) }
	const warned, applies = "a warning", "applied"
	for _, u := range []unsupported{
		{name: "core: uid", spec: core(`"uid":100$`), at: "users[0].uid", change: choice, gone: choice},
		{name: "core: groups", spec: core(`"groups":["wheel","g$"]`), at: "users[0].groups", change: choice, gone: choice},
		{name: "core: primaryGroup", spec: core(`"primaryGroup":"g$"`), at: "users[0].primaryGroup", change: choice, gone: choice},
		{name: "core: shell", spec: core(`"shell":"/bin/$"`), at: "users[0].shell", change: choice, gone: choice},
		{name: "core: gecos", spec: core(`"gecos":"$"`), at: "users[0].gecos", change: choice, gone: choice},
		{name: "core: homeDir", spec: core(`"homeDir":"/var/home/$"`), at: "users[0].homeDir", change: choice, gone: choice},
		{name: "core: noCreateHome", spec: core(`"noCreateHome":true,"gecos":"$"`), at: "users[0].noCreateHome", change: choice, gone: choice},
		{name: "core: noUserGroup", spec: core(`"noUserGroup":true,"gecos":"$"`), at: "users[0].noUserGroup", change: choice, gone: choice},
		{name: "core: noLogInit", spec: core(`"noLogInit":true,"gecos":"$"`), at: "users[0].noLogInit", change: choice, gone: choice},
		{name: "core: system", spec: core(`"system":true,"gecos":"$"`), at: "users[0].system", change: choice, gone: choice},
		{name: "core: shouldExist", spec: core(`"shouldExist":false,"gecos":"$"`), at: "users[0].shouldExist", change: choice, gone: choice},
		{name: "core: a hash that is none", spec: core(`"passwordHash":"!$"`), at: "users[0].passwordHash", change: refused, gone: warned},
		{name: "core: an unknown member", spec: core(`"colour":"$"`), at: "users[0].colour", change: refused, gone: warned},
		{name: "another user", spec: user(`"name":"a","uid":$`), at: "users[0].name", change: choice, gone: choice},
		{name: "a user without a name", spec: user(`"uid":$`), at: "users[0]", change: choice, gone: choice},
		{name: "groups", spec: config(`"passwd":{"groups":[{"name":"a$"}]}`), at: "passwd.groups", change: choice, gone: choice},
		{name: "disks", spec: storage("disks", `"device":"/dev/vd$"`), at: "storage.disks", change: choice, gone: choice},
		{name: "RAID", spec: storage("raid", `"name":"a$","level":"raid1","devices":["/dev/vda","/dev/vdb"]`), at: "storage.raid", change: choice, gone: choice},
		{name: "file systems", spec: storage("filesystems", `"path":"/var","device":"/dev/vd$","format":"xfs"`), at: "storage.filesystems", change: choice, gone: choice},
		{name: "LUKS", spec: storage("luks", `"name":"a","device":"/dev/vd$"`), at: "storage.luks", change: choice, gone: choice},
		{name: "append", spec: storage("files", `"path":"/etc/x","append":[{"source":"data:,$"}]`), at: "storage.files[0]", change: choice, gone: choice},
		{name: "a hard link", spec: storage("links", `"path":"/etc/x","target":"/etc/$","hard":true`), at: "storage.links[0]", change: choice, gone: choice},
		{name: "Ignition's arguments", spec: config(`"kernelArguments":{"shouldExist":["a=$"]}`), at: "config.kernelArguments", change: choice, gone: choice},
		{name: "Ignition's own settings", spec: `"config":{"ignition":{"version":"3.4.0","timeouts":{"httpTotal":$}}},"kernelArguments":[%s]`, at: "config.ignition.timeouts", change: choice, gone: choice},
		{name: "FIPS mode", spec: `"fips":$,"kernelArguments":[%s]`, first: true, change: choice, gone: choice},
		{name: "a place of the image", spec: storage("files", `"path":"/usr/x","contents":{"source":"data:,$"}`), at: "storage.files[0]", change: refused, gone: warned},
		{name: "a place of the boot loader", spec: storage("directories", `"path":"/boot/x","mode":$`), at: "storage.directories[0]", change: refused, gone: warned},
		{name: "a link in memory", spec: storage("links", `"path":"/run/x","target":"/etc/$"`), at: "storage.links[0]", change: refused, gone: warned},
		{name: "pivot's own state", spec: storage("files", `"path":"/etc/pivot/live.json","contents":{"source":"data:,$"}`), at: "storage.files[0]", change: refused, gone: warned},
		{name: "the force file", spec: storage("files", `"path":"/run/machine-config-daemon-force","mode":$`), at: "storage.files[0]", change: refused, gone: warned},
		{name: "a special mode", spec: storage("files", `"path":"/etc/x","mode":102$`), at: "storage.files[0]", change: refused, gone: warned},
		{name: "contents from elsewhere", spec: storage("files", `"path":"/etc/x","contents":{"source":"https://r.example/$"}`), at: "storage.files[0]", change: refused, gone: warned},
		{name: "a member unknown to Ignition", spec: storage("files", `"path":"/etc/x","colour":"$"`), at: "storage.files[0].colour", change: refused, gone: warned},
		{name: "a path twice", spec: config(`"storage":{"files":[{"path":"/opt/x"},{"path":"/var/opt/x","mode":$}]}`), at: "storage.files[1]", change: refused, gone: warned},
		{name: "an unknown list", spec: storage("sockets", `"path":"$"`), at: "storage.sockets", change: refused, gone: warned},
		{name: "networkd", spec: config(`"networkd":{"units":[{"name":"$"}]}`), at: "config.networkd", change: refused, gone: warned},
		{name: "Ignition 2", spec: `"config":{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/$"}]}},"kernelArguments":[%s]`, at: "ignition.version", change: refused, gone: warned},
		{name: "a specifier of [Install]", spec: unit(`"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=%%m$.target\n"`), at: "systemd.units[0]", change: refused, gone: warned},
		{name: "a unit's name", spec: unit(`"name":"a b.service","contents":"#$"`), at: "systemd.units[0].name", change: refused, gone: warned},
		{name: "a drop-in's name", spec: unit(`"name":"a.service","dropins":[{"name":"../b.conf","contents":"#$"}]`), at: "dropins[0]", change: refused, gone: warned},
		{name: "a unit that is none", spec: unit(`"name":"a.service","contents":"[Unit\n$"`), at: "systemd.units[0]", change: refused, gone: warned},
		{name: "an argument against the policy", spec: `"kernelArguments":[%s,"ostree=/$"]`, at: "kernelArguments[1]", change: refused, gone: warned},
		{name: "an argument against the machine's policy", spec: `"kernelArguments":[%s,"ours=$"]`, at: "kernelArguments[1]", change: refused, gone: warned},
		{name: "an argument against FIPS mode", spec: `"kernelArguments":[%s,"fips=1","b=$"]`, at: "kernelArguments[1]", change: applies, gone: warned},
		{name: "an extension", spec: `"kernelArguments":[%s],"extensions":["wasm$"]`, at: "extensions[0]", change: refused, gone: warned},
		{name: "a kernel type", spec: `"kernelArguments":[%s],"kernelType":"quantum$"`, at: "kernelType", change: refused, gone: warned},
		{name: "an image", spec: `"kernelArguments":[%s],"osImageURL":"UPPER/$"`, at: "osImageURL", change: refused, gone: warned},
		{name: "a member of another case", spec: `"kernelArguments":[%s],"Fips":$`, at: "Fips", change: refused, gone: warned},
	} {
		t.Run(u.name, func(t *testing.T) { u.stays(t) })
	}
}

// with returns a MachineConfig with a value and an argument; without value it is given up.
func (u unsupported) with(value, argument string) []byte {
	if value == "" {
		return fmt.Appendf(nil, `{"metadata":{"name":"a"},"spec":{"config":{"ignition":{"version":"3.4.0"}},"kernelArguments":[%q]}}`, argument)
	}
	return fmt.Appendf(nil, `{"metadata":{"name":"a"},"spec":{`+strings.ReplaceAll(u.spec, "$", value)+`}}`, fmt.Sprintf("%q", argument))
}

func (u unsupported) stays(t *testing.T) {
	policy, err := kargs.DefaultPolicy().Extend("refuse ours it is ours\n")
	if err != nil {
		t.Fatal(err)
	}
	host := machineconfig.Host{Policy: &policy}
	one, two := "1", "2"
	if strings.Contains(u.spec, `s":$`) {
		one, two = "true", "false"
	}
	if _, report := machineconfig.Parse(u.with(one, "new=1"), host); report.Failed() == u.first || !strings.Contains(report.String(), u.at) {
		t.Errorf("a first boot reports %s", report)
	}
	has, report := machineconfig.ParseRecord(u.with(one, "old=1"), host)
	if has == nil {
		t.Fatalf("it cannot be what a machine runs with: %s", report)
	}
	for round := range 2 { // the second time from the record of the first
		host.Has, host.Unsupported = has, machineconfig.Stop
		d, report := machineconfig.Parse(u.with(one, "new=1"), host)
		if d == nil || len(report) > 0 || len(d.LeftOut) > 0 {
			t.Fatalf("round %d: what stays is reported: %s", round, report)
		}
		if len(d.KernelArguments) == 0 || d.KernelArguments[0] != "new=1" {
			t.Errorf("round %d: arguments %q", round, d.KernelArguments)
		}
		record, err := d.Record()
		if err != nil {
			t.Fatal(err)
		}
		if has, report = machineconfig.ParseRecord(record, host); has == nil {
			t.Fatalf("the record cannot be read: %s\n%s", report, record)
		}
	}
	if got := u.verdict(u.with(two, "new=1"), has, host); got != u.change {
		t.Errorf("a change is %s, want %s", got, u.change)
	}
	if got := u.verdict(u.with("", "new=1"), has, host); got != u.gone {
		t.Errorf("giving it up is %s, want %s", got, u.gone)
	}
}

// verdict returns what happens when a machine gets another MachineConfig.
func (u unsupported) verdict(new []byte, has *machineconfig.MachineConfig, host machineconfig.Host) string {
	host.Has, host.Unsupported = has, machineconfig.Stop
	stopped, report := machineconfig.Parse(new, host)
	host.Unsupported = machineconfig.Warn
	switch warned, _ := machineconfig.Parse(new, host); {
	case warned == nil:
		return refused
	case stopped == nil && len(warned.LeftOut) > 0:
		return choice
	case stopped != nil && len(report) > 0:
		return "a warning"
	case stopped != nil:
		return applied
	}
	return report.String()
}
