package machineconfig_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/enable"
)

// entriesOf returns the entries of a MachineConfig with a config of the given members, the state that it requests of
// units, and the report with paths in the config.
func entriesOf(members string) ([]hostfiles.File, enable.Units, string) {
	d, report := machineconfig.Parse([]byte(`{"spec":{"config":{"ignition":{"version":"3.4.0"},`+members+`}}}`), machineconfig.Host{})
	if d == nil {
		d = &machineconfig.MachineConfig{}
	}
	return d.Entries, d.Units, strings.ReplaceAll(report.String(), "$.spec.config", "$")
}

// TestEntries (P54, P57): what a config requests below /etc and /var, with Ignition's defaults,
// and the entries for units and SSH keys.
func TestEntries(t *testing.T) {
	const service = "[Service]\\nExecStart=/bin/a\\n[Install]\\nWantedBy=multi-user.target\\nAlso=b.socket\\n"
	got, units, report := entriesOf(`
		"storage":{
			"files":[
				{"path":"/etc/a","contents":{"source":"data:,hello"}},
				{"path":"/usr/local/bin/tool","mode":493},
				{"path":"/etc/d/b","mode":384,"user":{"id":7},"group":{"name":"wheel"}}],
			"directories":[{"path":"/etc/d"},{"path":"/etc/e","mode":448,"user":{"name":"root"}}],
			"links":[{"path":"/etc/l","target":"a","user":{"name":"core"}}]},
		"systemd":{"units":[
			{"name":"a.service","enabled":true,"contents":"` + service + `","dropins":[{"name":"x.conf","contents":"[Unit]\n"},{"name":"empty.conf"}]},
			{"name":"b.socket","contents":"[Install]\nWantedBy=sockets.target\nRequiredBy=a.service\n"},
			{"name":"c.service","mask":true,"enabled":false},
			{"name":"d.service","dropins":[{"name":"y.conf","contents":"[Service]\n"}]},
			{"name":"f.service","enabled":true,"mask":false},
			{"name":"i.service","mask":false,"contents":""},
			{"name":"g.service","mask":false},
			{"name":"h@x.service","enabled":false,"dropins":[{"name":"z.conf","contents":"[Install]\nWantedBy=a.target\n"}]},
			{"name":"e.service","enabled":false,"contents":"[Install]\nWantedBy=multi-user.target\n"}]},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 one","ssh-ed25519 two\n"],"passwordHash":"$y$hash"}]}`)
	if report != "" {
		t.Fatal(report)
	}
	var lines []string
	for _, f := range got {
		line := f.Path + ": " + f.String()
		if f.Kind == hostfiles.KindFile {
			line += fmt.Sprintf(" %.20q", f.Content)
		}
		lines = append(lines, line)
	}
	want := []string{
		`/etc/a: file with mode 0644 and owner 0:0 "hello"`,
		`/var/usrlocal/bin/tool: file with mode 0755 and owner 0:0 ""`,
		`/etc/d/b: file with mode 0600 and owner 7:wheel ""`,
		`/etc/d: directory with mode 0755 and owner 0:0`,
		`/etc/e: directory with mode 0700 and owner 0:0`,
		`/etc/l: link with mode 00 and owner core:0 to a`,
		`/etc/systemd/system/a.service: file with mode 0644 and owner 0:0 "[Service]\nExecStart="`,
		`/etc/systemd/system/a.service.d/x.conf: file with mode 0644 and owner 0:0 "[Unit]\n"`,
		`/etc/systemd/system/a.service.d/empty.conf: absent with mode 00 and owner 0:0`,
		`/etc/systemd/system/b.socket: file with mode 0644 and owner 0:0 "[Install]\nWantedBy=s"`,
		`/etc/systemd/system/c.service: link with mode 00 and owner 0:0 to /dev/null`,
		`/etc/systemd/system/d.service.d/y.conf: file with mode 0644 and owner 0:0 "[Service]\n"`,
		`/etc/systemd/system/h@x.service.d/z.conf: file with mode 0644 and owner 0:0 "[Install]\nWantedBy=a"`,
		`/etc/systemd/system/e.service: file with mode 0644 and owner 0:0 "[Install]\nWantedBy=m"`,
		`/var/home/core/.ssh: directory with mode 0700 and owner core:core`,
		`/var/home/core/.ssh/authorized_keys.d: directory with mode 0700 and owner core:core`,
		`/var/home/core/.ssh/authorized_keys.d/ignition: file with mode 0600 and owner core:core "ssh-ed25519 one\nssh-"`,
		`/etc/shadow/core: password of core`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("entries\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	var wishes []string
	for _, w := range units.Wishes {
		wishes = append(wishes, w.String())
	}
	if want := []string{"enable unit a.service", "preset unit b.socket", "unmask and enable unit f.service", "unmask unit i.service", "unmask unit g.service", "disable unit h@x.service", "disable unit e.service"}; !slices.Equal(wishes, want) {
		t.Errorf("wishes %q, want %q", wishes, want)
	}
	install := map[string]string{
		enable.Dir + "/a.service":            "[Install]\nWantedBy=multi-user.target\nAlso=b.socket\n",
		enable.Dir + "/a.service.d/x.conf":   "",
		enable.Dir + "/b.socket":             "[Install]\nWantedBy=sockets.target\nRequiredBy=a.service\n",
		enable.Dir + "/d.service.d/y.conf":   "",
		enable.Dir + "/e.service":            "[Install]\nWantedBy=multi-user.target\n",
		enable.Dir + "/h@x.service.d/z.conf": "[Install]\nWantedBy=a.target\n",
	}
	if !maps.Equal(units.Install, install) {
		t.Errorf("sections %q, want %q", units.Install, install)
	}
}

// TestRefused (P54, P57): what cannot be done in one transaction is rejected with its path.
func TestRefusedEntries(t *testing.T) {
	storage := func(kind, one string) string { return `"storage":{"` + kind + `":[` + one + `]}` }
	units := func(some string) string { return `"systemd":{"units":[` + some + `]}` }
	for _, c := range []struct{ members, want string }{
		{storage("files", `{"path":"/usr/lib/x"}`), "$.storage.files[0]: cannot apply /usr/lib/x: it is the image's"},
		{storage("files", `{"path":"/etc"}`), "cannot apply /etc: entries are below /etc and /var"},
		{storage("files", `{"path":"/var/lib/pivot/x"}`), "cannot apply /var/lib/pivot/x: it is pivot's own"},
		{storage("files", `{"path":"/etc/shadow/root"}`), "cannot apply /etc/shadow/root: /etc/shadow is a file"},
		{storage("directories", `{"path":"/etc/passwd-/x"}`), "cannot apply /etc/passwd-/x: /etc/passwd is a file"},
		{storage("links", `{"path":"/etc/subuid/core","target":"x"}`), "cannot apply /etc/subuid/core: /etc/subuid is a file"},
		{storage("files", `{"path":"/etc/pivot/live.json"}`), "cannot apply /etc/pivot/live.json: it is pivot's own"},
		{storage("files", `{"path":"/etc/pivot/live/x"}`), "cannot apply /etc/pivot/live/x: it is pivot's own"},
		{storage("files", `{"path":"/etc/pivot/.live.json.new"}`), "it is pivot's own"},
		{storage("files", `{"path":"/etc/pivot/left-out.json"}`), "it is pivot's own"},
		{storage("directories", `{"path":"/etc/pivot","mode":511}`), "cannot apply /etc/pivot: it is pivot's own"},
		{storage("files", `{"path":"/opt/x"},{"path":"/var/opt/x"}`), "$.storage.files[1]: /var/opt/x is asked for twice, also by $.storage.files[0]"},
		{storage("files", `{"path":"/opt/x"},{"path":"/var/opt/x/y"}`), "/var/opt/x/y would be below /var/opt/x, which is a file"},
		{`"passwd":{"users":[{"name":"admin"}]}`, "$.passwd.users[0].name: not implemented: a user other than core"},
		{`"passwd":{"users":[{"name":"core","passwordHash":""}]}`, "$.passwd.users[0].passwordHash: cannot be the hash of a password: it is empty"},
		{`"passwd":{"users":[{"name":"core","passwordHash":"!x"}]}`, "it is no hash: leave it out, which locks the password"},
		{`"passwd":{"users":[{"name":"core","passwordHash":"x:y"}]}`, "it is no hash as crypt(5) has it"},
		{`"storage":{"files":[{"path":"/etc/shadow"}]},"passwd":{"users":[{"name":"core","passwordHash":"$y$hash"}]}`, "/etc/shadow/core would be below /etc/shadow, which is a file"},
		{`"passwd":{"users":[{"name":"core","uid":1000,"groups":["wheel"]}]}`, "$.passwd.users[0].uid: not implemented: of user core only"},
		{storage("files", `{"path":"/etc/ignition-machine-config-encapsulated.json.bak"}`), "is what asks for the first boot"},
		{storage("files", `{"path":"/etc/x","append":[{"source":"data:,a"}]}`), "/etc/x: not implemented: append"},
		{storage("files", `{"path":"/etc/x","mode":2541}`), "/etc/x: mode 04755 is beyond 0777"},
		{storage("files", `{"path":"/etc/x","contents":{"source":"https://r.example/x"}}`), "not implemented: contents from"},
		{storage("directories", `{"path":"/etc/x","mode":1023}`), "/etc/x: mode 01777 is beyond 0777"},
		{storage("links", `{"path":"/etc/x","target":"y","hard":true}`), "/etc/x: not implemented: a hard link"},
		{storage("files", `{"path":"/etc/a"},{"path":"/etc/a/b/c"}`), "$.storage.files[1]: /etc/a/b/c would be below /etc/a, which is a file"},
		{storage("files", `{"path":"/etc/systemd/system/a.service"}`) + "," + units(`{"name":"a.service","mask":true}`),
			"$.systemd.units[0]: /etc/systemd/system/a.service is asked for twice, also by $.storage.files[0]"},
		{units(`{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=%m.target\n"}`), "not implemented: the specifier %m"},
		{units(`{"name":"a/b.service","contents":"x"}`), `$.systemd.units[0].name: "a/b.service" is not the name of a unit`},
		{units(`{"name":"a.service","dropins":[{"name":"../b.conf","contents":"[Unit]"}]}`), `$.systemd.units[0].dropins[0].name: "../b.conf" is not the name of a file`},
	} {
		if _, _, report := entriesOf(c.members); !strings.Contains(report, c.want) {
			t.Errorf("%s: %s\nwant %s", c.members, report, c.want)
		}
	}
}
