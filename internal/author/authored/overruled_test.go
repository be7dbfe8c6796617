package authored_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig"
)

// TestOverruled: where the setting of a later name does not win, a warning says so; where it wins, or is the same, none does.
func TestOverruled(t *testing.T) {
	const image, other = `{"osImageURL":"quay.io/a@` + digest + `"}`, `{"osImageURL":"quay.io/b@` + digest + `"}`
	unit := func(members string) string {
		return `{"config":{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service",` + members + `}]}}}`
	}
	core := func(members string) string {
		return `{"config":{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core",` + members + `}]}}}`
	}
	generated := mc(t, "worker", "9", other)
	generated.Annotations = map[string]string{machineconfig.GeneratedBy: "abc"}
	one, two := files(`{"path":"/etc/a","contents":{"source":"data:,1"}}`), files(`{"path":"/etc/a","contents":{"source":"data:,2"}}`)
	for name, c := range map[string]struct {
		all  []*authored.MachineConfig
		want string // a part of the warning; "": none
	}{
		"FIPS mode is not taken back":           {[]*authored.MachineConfig{mc(t, "worker", "1", `{"fips":true}`), mc(t, "worker", "2", `{"fips":false}`)}, `$.spec.fips: "fips: false" of 2 does not win over 1`},
		"a program writes all members":          {[]*authored.MachineConfig{mc(t, "worker", "1", `{"fips":true}`), mc(t, "worker", "2", `{"fips":false,"osImageURL":"","kernelType":""}`)}, ""},
		"FIPS mode comes later":                 {[]*authored.MachineConfig{mc(t, "worker", "1", `{"fips":false}`), mc(t, "worker", "2", `{"fips":true}`)}, ""},
		"a kernel is not taken back":            {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelType":"realtime"}`), mc(t, "worker", "2", `{"kernelType":"default"}`)}, `"kernelType: default" of 2 does not win over 1`},
		"another kernel":                        {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelType":"realtime"}`), mc(t, "worker", "2", `{"kernelType":"64k-pages"}`)}, ""},
		"a kernel of a role":                    {[]*authored.MachineConfig{mc(t, "worker", "2", `{"kernelType":"realtime"}`), mc(t, "infra", "1", `{"kernelType":"64k-pages"}`)}, `"realtime" of 2 does not win over 1: those of the role infra`},
		"an image of a controller's":            {[]*authored.MachineConfig{mc(t, "worker", "1", image), generated}, `of 9 does not win over 1`},
		"an image of a role":                    {[]*authored.MachineConfig{mc(t, "worker", "2", image), mc(t, "infra", "1", other)}, `of 2 does not win over 1`},
		"a file of a role":                      {[]*authored.MachineConfig{mc(t, "worker", "2", one), mc(t, "infra", "1", two)}, `"/etc/a" of 2 does not win over 1`},
		"the same file of a role":               {[]*authored.MachineConfig{mc(t, "worker", "2", one), mc(t, "infra", "1", one)}, ""},
		"a file of a role with a later name":    {[]*authored.MachineConfig{mc(t, "worker", "1", one), mc(t, "infra", "2", two)}, ""},
		"a unit stays masked":                   {[]*authored.MachineConfig{mc(t, "worker", "1", unit(`"mask":true`)), mc(t, "worker", "2", unit(`"enabled":true`))}, `"a.service" of 2 does not win over 1`},
		"a unit is unmasked":                    {[]*authored.MachineConfig{mc(t, "worker", "1", unit(`"mask":true`)), mc(t, "worker", "2", unit(`"enabled":true,"mask":false`))}, ""},
		"huge pages of one size":                {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["hugepagesz=1G hugepages=4"]}`), mc(t, "worker", "2", `{"kernelArguments":["hugepagesz=1024M","hugepages=8"]}`)}, `"hugepagesz=1024M" of 2 does not win over 1`},
		"huge pages in Ignition's arguments":    {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["default_hugepagesz=1G"]}`), mc(t, "worker", "2", arguments("default_hugepagesz=2M"))}, `"default_hugepagesz=2M" of 2`},
		"huge pages of two sizes":               {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["hugepagesz=1G hugepages=4"]}`), mc(t, "worker", "2", `{"kernelArguments":["hugepagesz=2M hugepages=8"]}`)}, ""},
		"the same huge pages":                   {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["hugepagesz=1G hugepages=4"]}`), mc(t, "worker", "2", `{"kernelArguments":["hugepagesz=1G hugepages=4"]}`)}, ""},
		"an argument of which the last counts":  {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["audit=1"]}`), mc(t, "worker", "2", `{"kernelArguments":["audit=0"]}`)}, ""},
		"other members of a unit":               {[]*authored.MachineConfig{mc(t, "worker", "2", unit(`"enabled":true,"dropins":[{"name":"a.conf","contents":"[Unit]"}]`)), mc(t, "infra", "1", unit(`"dropins":[{"name":"b.conf","contents":"[Unit]"}]`))}, ""},
		"the same drop-in of a unit":            {[]*authored.MachineConfig{mc(t, "worker", "2", unit(`"dropins":[{"name":"a.conf","contents":"[Unit]"}]`)), mc(t, "infra", "1", unit(`"dropins":[{"name":"a.conf","contents":"[Service]"}]`))}, `"a.service/a.conf" of 2 does not win over 1`},
		"a masked unit gets a drop-in":          {[]*authored.MachineConfig{mc(t, "worker", "1", unit(`"mask":true`)), mc(t, "worker", "2", unit(`"dropins":[{"name":"a.conf","contents":"[Unit]"}]`))}, `"a.service" of 2 does not win over 1`},
		"other members of a file":               {[]*authored.MachineConfig{mc(t, "worker", "2", files(`{"path":"/etc/a","mode":384}`)), mc(t, "infra", "1", one)}, ""},
		"a file and a link":                     {[]*authored.MachineConfig{mc(t, "worker", "2", one), mc(t, "infra", "1", `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/a","target":"b"}]}}}`)}, `"/etc/a" of 2 does not win over 1`},
		"a password of a role":                  {[]*authored.MachineConfig{mc(t, "worker", "2", core(`"passwordHash":"$6$a"`)), mc(t, "infra", "1", core(`"passwordHash":"$6$b"`))}, `"core" of 2 does not win over 1`},
		"keys are added":                        {[]*authored.MachineConfig{mc(t, "worker", "2", core(`"sshAuthorizedKeys":["ssh-rsa AAAA"]`)), mc(t, "infra", "1", core(`"sshAuthorizedKeys":["ssh-rsa BBBB"]`))}, ""},
		"an argument of a role":                 {[]*authored.MachineConfig{mc(t, "worker", "2", `{"kernelArguments":["audit=1"]}`), mc(t, "infra", "1", `{"kernelArguments":["audit=0"]}`)}, `"audit=1" of 2 does not win over 1: those of the role infra`},
		"another console of a role":             {[]*authored.MachineConfig{mc(t, "worker", "2", `{"kernelArguments":["console=tty0"]}`), mc(t, "infra", "1", `{"kernelArguments":["console=ttyS0"]}`)}, ""},
		"an argument beside Ignition's":         {[]*authored.MachineConfig{mc(t, "worker", "1", arguments("audit=0")), mc(t, "worker", "2", `{"kernelArguments":["audit=1"]}`)}, `"audit=1" of 2 does not win over 1: Ignition's`},
		"Ignition's argument wins":              {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["audit=1"]}`), mc(t, "worker", "2", arguments("audit=0"))}, ""},
		"an argument is not taken away":         {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["quiet"]}`), mc(t, "worker", "2", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldNotExist":["quiet"]}}}`)}, `"quiet" of 2 does not win over 1`},
		"CPUs are isolated once":                {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["isolcpus=1"]}`), mc(t, "worker", "2", `{"kernelArguments":["isolcpus=2"]}`)}, `"isolcpus=2" of 2 does not win over 1`},
		"lockdown is not taken back":            {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["lockdown=confidentiality"]}`), mc(t, "worker", "2", `{"kernelArguments":["lockdown=integrity"]}`)}, `"lockdown=integrity" of 2 does not win over 1`},
		"lockdown becomes stronger":             {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["lockdown=integrity"]}`), mc(t, "worker", "2", `{"kernelArguments":["lockdown=confidentiality"]}`)}, ""},
		"huge pages twice in one MachineConfig": {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["hugepagesz=1G hugepages=4 hugepagesz=1G hugepages=8"]}`)}, ""},
	} {
		got := authored.Overruled(c.all).String()
		if c.want == "" && got != "" || !strings.Contains(got, c.want) || got != "" && !strings.HasPrefix(got, "warning: ") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
