package machineconfig_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig"
)

// TestOperatorAccepts: what the machine-config operator accepts with a warning has the same
// warning on a first boot and on a running machine, and is applied.
func TestOperatorAccepts(t *testing.T) {
	const service = `"contents":"[Service]\nExecStart=/bin/true\n"`
	for name, c := range map[string]struct{ config, warning string }{
		"no [Install]":               {`"systemd":{"units":[{"name":"a.service","enabled":true,` + service + `}]}`, `units[0].contents: unit "a.service" is enabled, but has no install section`},
		"no [Install] of a template": {`"systemd":{"units":[{"name":"a@.service",` + service + `},{"name":"a@x.service","enabled":true}]}`, "doesn't have Install section"},
		"a file on root":             {`"storage":{"files":[{"filesystem":"root","path":"/etc/a"}]}`, "$.spec.config.storage.files[0].filesystem: unknown member"},
		"a directory on root":        {`"storage":{"directories":[{"filesystem":"root","path":"/etc/a"}]}`, "directories[0].filesystem: unknown member"},
		"a link on root":             {`"storage":{"links":[{"path":"/etc/a","target":"b","filesystem":"root"}]}`, "links[0].filesystem: unknown member"},
		"networkd of version 2":      {`"networkd":{},"storage":{"files":[{"path":"/etc/a"}]}`, "$.spec.config.networkd: unknown member"},
		"no units of networkd":       {`"networkd":{"units":[]},"storage":{"files":[{"path":"/etc/a"}]}`, "$.spec.config.networkd: unknown member"},
		"nothing in a file":          {`"storage":{"files":[{"path":"/etc/a","apend":{"x":null}}]}`, "files[0].apend: unknown member"},
		"on root, after another":     {`"storage":{"files":[{"path":"/etc/b"},{"filesystem":"root","path":"/etc/a"}]}`, "files[1].filesystem: unknown member"},
	} {
		for _, host := range []machineconfig.Host{{}, {Has: has(t, spec("", ""))}} {
			d, report := machineconfig.Parse([]byte(spec("", c.config)), host)
			if d == nil || len(report) != 1 || !strings.Contains(report.String(), c.warning) || len(d.Entries) == 0 {
				t.Errorf("%s, running %v: %s", name, host.Has != nil, report)
			}
		}
	}
	for _, config := range []string{
		`"storage":{"files":[{"filesystem":"data","path":"/etc/a"}]}`, `"storage":{"files":[{"filesystem":["root"],"path":"/etc/a"}]}`,
		`"storage":{"disks":[{"device":"/dev/a","filesystem":"root"}]}`, `"systemd":{"units":[{"name":"a.service","filesystem":"root"}]}`,
		`"networkd":{"units":[{"name":"a.network","contents":"x"}]}`, `"storage":{"files":[{"path":"/etc/a","apend":[{}]}]}`, `"storage":{"files":[{"path":"/etc/a","exec":false}]}`,
		`"storage":{"files":[{"contents":{"filesystem":"root"},"path":"/etc/a"}]}`,
	} {
		if d, report := machineconfig.Parse([]byte(spec("", config)), machineconfig.Host{}); d != nil {
			t.Errorf("%s: %s", config, report)
		}
	}
}
