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
		"huge pages twice in one MachineConfig": {[]*authored.MachineConfig{mc(t, "worker", "1", `{"kernelArguments":["hugepagesz=1G hugepages=4 hugepagesz=1G hugepages=8"]}`)}, ""},
	} {
		got := authored.Overruled(c.all).String()
		if c.want == "" && got != "" || !strings.Contains(got, c.want) || got != "" && !strings.HasPrefix(got, "warning: ") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
