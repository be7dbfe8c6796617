package machineconfig_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// spec returns a MachineConfig with members of spec and of spec.config.
func spec(members, config string) string {
	if config != "" {
		config = "," + config
	}
	if members != "" {
		members += ","
	}
	return `{"metadata":{"name":"a"},"spec":{` + members + `"config":{"ignition":{"version":"3.4.0"}` + config + `}}}`
}

// has returns a machine's current state from its MachineConfig.
func has(t *testing.T, text string) *machineconfig.MachineConfig {
	t.Helper()
	d, report := machineconfig.ParseRecord([]byte(text), machineconfig.Host{})
	if d == nil {
		t.Fatalf("%s: %s", text, report)
	}
	d.SetFIPS(d.FIPS)
	return d
}

// The verdicts of the matrix.
const (
	applied = "applied"
	choice  = "`--unsupported`"
	refused = "refused"
)

// matrix has two values for each setting that can differ.
var matrix = map[string][2]string{
	"image":                              {spec(`"osImageURL":"r.example/a@`+digest+`"`, ""), spec(`"osImageURL":"r.example/b@`+digest+`"`, "")},
	"kernel arguments":                   {spec("", ""), spec(`"kernelArguments":["a=1"]`, "")},
	"kernel type":                        {spec("", ""), spec(`"kernelType":"realtime"`, "")},
	"extensions":                         {spec("", ""), spec(`"extensions":["usbguard"]`, "")},
	"FIPS mode":                          {spec("", ""), spec(`"fips":true`, "")},
	"files below `/etc`":                 {spec("", ""), spec("", `"storage":{"files":[{"path":"/etc/x"}]}`)},
	"files outside of `/etc`":            {spec("", ""), spec("", `"storage":{"files":[{"path":"/opt/x"}]}`)},
	"`/run/machine-config-daemon-force`": {spec("", ""), spec("", `"storage":{"files":[{"path":"/run/machine-config-daemon-force"}]}`)},
	"files with `append`":                {spec("", ""), spec("", `"storage":{"files":[{"path":"/etc/x","append":[{"source":"data:,a"}]}]}`)},
	"directories below `/etc`":           {spec("", ""), spec("", `"storage":{"directories":[{"path":"/etc/x"}]}`)},
	"symbolic links below `/etc`":        {spec("", ""), spec("", `"storage":{"links":[{"path":"/etc/x","target":"y"}]}`)},
	"hard links":                         {spec("", ""), spec("", `"storage":{"links":[{"path":"/etc/x","target":"/etc/y","hard":true}]}`)},
	"disks":                              {spec("", ""), spec("", `"storage":{"disks":[{"device":"/dev/vda","wipeTable":true}]}`)},
	"RAID":                               {spec("", ""), spec("", `"storage":{"raid":[{"name":"a","level":"raid1","devices":["/dev/vda","/dev/vdb"]}]}`)},
	"file systems":                       {spec("", `"storage":{"filesystems":[{"path":"/var","device":"/dev/vda","format":"ext4"}]}`), spec("", `"storage":{"filesystems":[{"path":"/var","device":"/dev/vda","format":"xfs"}]}`)},
	"LUKS":                               {spec("", ""), spec("", `"storage":{"luks":[{"name":"a","device":"/dev/vda"}]}`)},
	"units, drop-ins, masks, enablement": {spec("", ""), spec("", `"systemd":{"units":[{"name":"a.service","enabled":true,"dropins":[{"name":"x.conf","contents":"[Unit]\n"}]},{"name":"b.service","mask":true}]}`)},
	"SSH keys and password of `core`":    {spec("", ""), spec("", `"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}`)},
	"other settings of `core`":           {spec("", `"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 A"]}]}`), spec("", `"passwd":{"users":[{"name":"core","uid":7,"sshAuthorizedKeys":["ssh-ed25519 A"]}]}`)},
	"users other than `core`":            {spec("", `"passwd":{"users":[{"name":"a"}]}`), spec("", `"passwd":{"users":[{"name":"b"},{"name":"a"}]}`)},
	"groups":                             {spec("", ""), spec("", `"passwd":{"groups":[{"name":"a"}]}`)},
	"Ignition's `kernelArguments`":       {spec("", ""), spec("", `"kernelArguments":{"shouldExist":["a"]}`)},
	"Ignition's own settings":            {spec("", ""), `{"spec":{"config":{"ignition":{"version":"3.4.0","timeouts":{"httpTotal":30}}}}}`},
	"networkd units (Ignition 2)":        {spec("", ""), `{"spec":{"config":{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network","contents":"x"}]}}}}`},
}

// TestMatrix (P58): what happens to each difference on a running machine, as documented. An
// equal value is not a difference. What is refused can still be given up.
func TestMatrix(t *testing.T) {
	documented := documentedMatrix(t)
	for name, c := range matrix {
		for turn, pair := range [][2]string{c, {c[1], c[0]}} {
			got := verdict(t, pair[0], pair[1])
			want := documented[name]
			if turn == 1 && want == refused {
				want = applied
			}
			if got != want {
				t.Errorf("%s (%d): %s, and docs/supported.md says %q", name, turn, got, want)
			}
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("docs/supported.md has rows that nothing tries: %v", documented)
	}
}

// verdict returns what happens when a machine with the MachineConfig old gets new.
func verdict(t *testing.T, old, new string) string {
	t.Helper()
	before, _ := machineconfig.ParseRecord([]byte(old), machineconfig.Host{})
	before.SetFIPS(before.FIPS)
	_, stopped := machineconfig.Parse([]byte(new), machineconfig.Host{Has: before})
	warned, report := machineconfig.Parse([]byte(new), machineconfig.Host{Has: before, Unsupported: machineconfig.Warn})
	switch {
	case warned == nil:
		if stopped.Failed() {
			return refused
		}
	case !stopped.Failed() && len(warned.LeftOut) == 0:
		return applied
	case stopped.Failed() && len(warned.LeftOut) > 0 && strings.Contains(report.String(), "left out: "+warned.LeftOut[0]):
		same := has(t, new)
		if again, report := machineconfig.Parse([]byte(new), machineconfig.Host{Has: same}); again == nil || len(again.LeftOut) > 0 {
			t.Errorf("what the machine has is a difference: %s", report)
		}
		return choice
	}
	return fmt.Sprintf("neither: %s; %s", stopped, report)
}

// documentedMatrix returns the table in docs/supported.md.
func documentedMatrix(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/supported.md")
	if err != nil {
		t.Fatal(err)
	}
	section, _, _ := strings.Cut(string(text), "\n## ")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \| .+ \|$`).FindAllStringSubmatch(section, -1)[1:] {
		rows[row[1]] = row[2]
	}
	return rows
}

// TestLeftOut (P58): settings that are left out have the machine's values in the record, so
// that the next MachineConfig is compared with the machine. Everything else has the requested
// value.
func TestLeftOut(t *testing.T) {
	old := has(t, spec("", `"passwd":{"users":[{"name":"a","uid":7},{"name":"b"}]},"storage":{"disks":[{"device":"/dev/vda"}],"links":[{"path":"/etc/h","target":"/etc/x","hard":true}],
		"files":[{"path":"/etc/x","append":[{"source":"data:,a"}]}]}`))
	asked := spec(`"fips":true,"kernelArguments":["a=1"]`, `"passwd":{"users":[{"name":"a","uid":8},{"name":"c"}],"groups":[{"name":"g"}]},"storage":{"files":[{"path":"/etc/z"},{"path":"/etc/y"}]}`)
	if _, report := machineconfig.Parse([]byte(asked), machineconfig.Host{Has: old, Unsupported: machineconfig.Stop}); len(report.Errors()) != 8 {
		t.Errorf("not one error for each difference: %s", report)
	}
	d, report := machineconfig.Parse([]byte(asked), machineconfig.Host{Has: old, Unsupported: machineconfig.Warn})
	if d == nil {
		t.Fatal(report)
	}
	const want = `["config.passwd.groups","config.passwd.users a","config.passwd.users c","fips","config.storage.disks","config.passwd.users b","config.storage.files /etc/x","config.storage.links /etc/h"]`
	if got, err := json.Marshal(d.LeftOut); err != nil || string(got) != want {
		t.Errorf("left out %s, want %s", got, want)
	}
	if d.FIPS || len(d.Entries) != 2 || len(d.KernelArguments) != 1 {
		t.Errorf("asked for are %+v", d)
	}
	record, err := d.Record()
	if err != nil {
		t.Fatal(err)
	}
	again, report := machineconfig.Parse([]byte(asked), machineconfig.Host{Has: has(t, string(record)), Unsupported: machineconfig.Warn})
	if again == nil || !reflect.DeepEqual(again.LeftOut, d.LeftOut) {
		t.Errorf("the record is\n%s\nwith which %s", record, report)
	}
	back, report := machineconfig.Parse(record, machineconfig.Host{Has: old})
	if back == nil || len(back.LeftOut) > 0 {
		t.Errorf("the machine differs from its record: %s", report)
	}
}

// TestFileThatIsAppendedTo (P58): an ordinary file stays in place of one that is left out, and
// may replace one that was appended to.
func TestFileThatIsAppendedTo(t *testing.T) {
	for _, path := range []string{"/etc/x", "/opt/x"} { // the latter is below /var
		t.Run(path, func(t *testing.T) { appendedTo(t, path) })
	}
}

func appendedTo(t *testing.T, path string) {
	plain, appended := spec("", `"storage":{"files":[{"path":"`+path+`","mode":384}]}`), spec("", `"storage":{"files":[{"path":"`+path+`","append":[{"source":"data:,a"}]}]}`)
	d, report := machineconfig.Parse([]byte(appended), machineconfig.Host{Has: has(t, plain), Unsupported: machineconfig.Warn})
	if d == nil || len(d.Entries) != 1 || d.Entries[0].Mode != 0o600 {
		t.Fatalf("%+v\n%s", d, report)
	}
	record, err := d.Record()
	if err != nil || !strings.Contains(string(record), `"mode":384`) || strings.Contains(string(record), "append") {
		t.Errorf("record %s, %v", record, err)
	}
	if d, report := machineconfig.Parse([]byte(plain), machineconfig.Host{Has: has(t, appended)}); d == nil || len(d.Entries) != 1 {
		t.Errorf("%+v\n%s", d, report)
	}
}

// TestReplaceLeavesItToTheCaller (P58): all differences are listed, and none is a problem in
// the report.
func TestReplaceLeavesItToTheCaller(t *testing.T) {
	d, report := machineconfig.Parse([]byte(matrix["disks"][1]), machineconfig.Host{Has: has(t, spec("", "")), Unsupported: machineconfig.Replace})
	if d == nil || len(report) > 0 || !reflect.DeepEqual(d.LeftOut, []string{"config.storage.disks"}) {
		t.Errorf("%+v\n%s", d, report)
	}
}

// TestSameInAnotherForm (P58): empty values and the order of members make no difference.
func TestSameInAnotherForm(t *testing.T) {
	old := has(t, spec(`"fips":false`, `"storage":{"disks":[{"device":"/dev/vda","wipeTable":true}],"raid":null}`))
	d, report := machineconfig.Parse([]byte(spec("", `"storage":{"disks":[{"wipeTable":true,"device":"/dev/vda","partitions":[]}],"filesystems":[]},"passwd":{"users":[],"groups":null}`)), machineconfig.Host{Has: old})
	if d == nil || len(report) > 0 {
		t.Error(report)
	}
}

// FuzzChange (P58): no combination of states panics, equal states are no change, and settings
// that only an installation can change keep the machine's values or are listed.
func FuzzChange(f *testing.F) {
	for _, pair := range matrix {
		f.Add([]byte(pair[0]), []byte(pair[1]))
		f.Add([]byte(pair[1]), []byte(pair[0]))
	}
	f.Fuzz(func(t *testing.T, old, new []byte) {
		before, _ := machineconfig.ParseRecord(old, machineconfig.Host{})
		if before == nil {
			return
		}
		d, _ := machineconfig.Parse(new, machineconfig.Host{Has: before, Unsupported: machineconfig.Warn})
		stopped, _ := machineconfig.Parse(new, machineconfig.Host{Has: before})
		if d == nil {
			return
		}
		if (stopped == nil) != (len(d.LeftOut) > 0) {
			t.Fatalf("left out are %q, and stopped is %v", d.LeftOut, stopped)
		}
		record, err := d.Record()
		if err != nil {
			t.Fatal(err)
		}
		if _, unusable := machineconfig.ParseForeign(old, machineconfig.Host{}); stopped != nil && len(unusable) == 0 {
			for _, name := range []string{"disks", "raid", "filesystems", "luks"} {
				if was, is := storage(t, old, name), storage(t, new, name); was != is {
					t.Fatalf("there were %d %s, there are %d, and nothing says so", was, name, is)
				}
			}
		}
		now, report := machineconfig.ParseRecord(record, machineconfig.Host{})
		if now == nil {
			t.Fatalf("the record cannot be read: %s\n%s", report, record)
		}
		again, report := machineconfig.Parse(new, machineconfig.Host{Has: now, Unsupported: machineconfig.Warn})
		if again == nil || !reflect.DeepEqual(again.LeftOut, d.LeftOut) || !reflect.DeepEqual(again.Entries, d.Entries) || !again.Units.Same(d.Units) {
			t.Fatalf("the same again differs: %s", report)
		}
	})
}

// storage returns the number of items in a kind of storage of a MachineConfig.
func storage(t *testing.T, text []byte, kind string) int {
	t.Helper()
	var at any
	if err := json.Unmarshal(text, &at); err != nil {
		t.Fatal(err) // the code under test has read it
	}
	for _, name := range []string{"spec", "config", "storage", kind} {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	list, _ := at.([]any)
	return len(list)
}

// TestRecordOfAnotherVersion (P58): the record has settings that are left out. It can be read even if the new
// MachineConfig has no config, or a version without them.
func TestRecordOfAnotherVersion(t *testing.T) {
	old := has(t, `{"spec":{"config":{"ignition":{"version":"3.2.0"},"storage":{"luks":[{"name":"data","device":"/dev/vdb"}]}}}}`)
	for name, c := range map[string]struct{ spec, version string }{
		"no config":            {`{"spec":{"kernelArguments":["a=1"]}}`, "3.2.0"},
		"a config of nothing":  {`{"spec":{"config":{"ignition":{"version":""}}}}`, "3.2.0"},
		"an earlier version":   {`{"spec":{"config":{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/etc/x"}]}}}}`, "3.2.0"},
		"a later version":      {`{"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/x"}]}}}}`, "3.4.0"},
		"no difference at all": {`{"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"luks":[{"name":"data","device":"/dev/vdb"}]}}}}`, "3.4.0"},
	} {
		d, report := machineconfig.Parse([]byte(c.spec), machineconfig.Host{Has: old, Unsupported: machineconfig.Warn})
		if d == nil {
			t.Errorf("%s: %s", name, report)
			continue
		}
		record, err := d.Record()
		if err != nil {
			t.Fatal(err)
		}
		if again, report := machineconfig.ParseRecord(record, machineconfig.Host{}); again == nil || !strings.Contains(string(record), `"version":"`+c.version+`"`) || !strings.Contains(string(record), "luks") {
			t.Errorf("%s: %s\n%s", name, report, record)
		}
	}
	// If nothing of the config is left out, it is unchanged.
	d, _ := machineconfig.Parse([]byte(`{"spec":{"fips":true}}`), machineconfig.Host{Has: has(t, spec("", "")), Unsupported: machineconfig.Warn})
	if record, err := d.Record(); err != nil || strings.Contains(string(record), "ignition") {
		t.Errorf("%s, %v", record, err)
	}
}

// TestChangesListed: a valid MachineConfig that changes what only an installation can change is no invalid one. It
// fails otherwise, and the report has each field with the old and the new value, without secrets. If anything is
// invalid too, the MachineConfig is.
func TestChangesListed(t *testing.T) {
	before := has(t, spec("", `"storage":{"disks":[{"device":"/dev/vda"}],"luks":[{"name":"a","device":"/dev/vda","keyFile":{"source":"data:,topsecret"}}]}`))
	before.SetFIPS(true)
	const after = `"storage":{"disks":[{"device":"/dev/vdb","wipeTable":true}]},"passwd":{"users":[{"name":"a","passwordHash":"$6$topsecret"}]}`
	_, report := machineconfig.Parse([]byte(spec("", after)), machineconfig.Host{Has: before})
	got := map[string]string{}
	for _, p := range report {
		if p.Change == nil {
			t.Fatalf("no change: %s", p)
		}
		got[p.Change.Field] = string(p.Change.Old) + " " + string(p.Change.New)
	}
	want := map[string]string{
		"config.storage.disks":  `[{"device":"/dev/vda"}] [{"device":"/dev/vdb","wipeTable":true}]`,
		"config.storage.luks":   `[{"device":"/dev/vda","keyFile":{"source":"(hidden)"},"name":"a"}] null`,
		"config.passwd.users a": `null {"name":"a","passwordHash":"(hidden)"}`,
		"fips":                  `true false`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	err := report.Err("it")
	if unusable, ok := errors.AsType[*problem.Unusable](err); fault.KindOf(err) != fault.Unreconcilable || fault.HintOf(err) == "" || !ok || len(unusable.Report) != len(report) {
		t.Errorf("%v is %v", err, fault.KindOf(err))
	}
	for _, text := range []string{
		`config.storage.disks differs from what the machine has, and only an installation can change it: the machine has [{"device":"/dev/vda"}], the MachineConfig [{"device":"/dev/vdb","wipeTable":true}]`,
		`the machine has nothing, the MachineConfig {"name":"a","passwordHash":"(hidden)"}`,
	} {
		if !strings.Contains(report.String(), text) {
			t.Errorf("no %q in %s", text, report)
		}
	}
	_, report = machineconfig.Parse([]byte(spec(`"extensions":["none such"]`, after)), machineconfig.Host{Has: before})
	if err := report.Err("it"); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "config.storage.disks") {
		t.Errorf("with invalid input it is %v: %v", fault.KindOf(err), err)
	}
	large := strings.Repeat("x", 5000)
	_, report = machineconfig.Parse([]byte(spec("", `"storage":{"disks":[{"device":"/dev/`+large+`"}]}`)), machineconfig.Host{Has: before})
	if i := slices.IndexFunc(report, func(p problem.Problem) bool { return p.Change != nil && p.Change.Field == "config.storage.disks" }); i < 0 || string(report[i].Change.New) != `"(5020 bytes)"` {
		t.Errorf("a large value: %v", report)
	}
}
