package authored_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// FuzzRefusedByMachines: what a machine refuses or sets aside because of a MachineConfig's text, its author has been
// told before. The text is the author's, what is rendered from it, and what Ignition leaves for a first boot.
func FuzzRefusedByMachines(f *testing.F) {
	for _, spec := range refusedByMachines() {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		if !json.Valid([]byte(spec)) {
			return // members behind the spec would be of the MachineConfig
		}
		text := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","labels":{%q:"worker"}},"spec":%s}`, machineconfig.APIVersion, machineconfig.Kind, authored.RoleLabel, spec)
		all, report := authored.Decode("a.json", text, rules())
		if report.Failed() || len(all) != 1 {
			return
		}
		merged, err := authored.Merge(all, authored.Images{})
		if err != nil {
			t.Fatal(err)
		}
		if report := authored.Check(merged, rules()); report.Failed() || isRenderedOtherwise(all[0].Spec, spec) {
			return
		}
		rendered, err := merged.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, given := range [][]byte{text, rendered} {
			if refused := refusedBy(given); len(refused) > 0 {
				t.Errorf("the author is not told\n%s\nof\n%s", refused, given)
			}
		}
		for _, version := range authored.IgnitionVersions() {
			if refused := refusedByFirstBoot(merged, version); len(refused) > 0 {
				t.Errorf("the author is not told\n%s\nby a first boot with Ignition %s of\n%s", refused, version, text)
			}
		}
	})
}

// isRenderedOtherwise reports whether a machine gets something else than the text: version 3 instead of 2, contents instead of
// their addresses, or a config instead of those that it names. Modes that need a version are judged by that of the text.
func isRenderedOtherwise(spec machineconfig.Spec, text string) bool {
	if spec.Config == nil {
		return false
	}
	for _, f := range spec.Config.Storage.Files {
		if f.Mode != nil && *f.Mode > 0o777 {
			return true
		}
	}
	for _, d := range spec.Config.Storage.Directories {
		if d.Mode != nil && *d.Mode > 0o777 {
			return true
		}
	}
	var given struct {
		Config struct {
			Ignition struct {
				Version string
				Config  any
			}
		}
	}
	return json.Unmarshal([]byte(text), &given) != nil || strings.HasPrefix(given.Config.Ignition.Version, "2.") ||
		given.Config.Ignition.Config != nil || len(ignition.Remote(spec.Config)) > 0
}

// refusedBy returns what a machine sets aside of a MachineConfig that it runs with, and what it refuses if it is given the
// same in the place of another one.
func refusedBy(text []byte) (refused problem.Report) {
	policy := kargs.DefaultPolicy()
	host := machineconfig.Host{Policy: &policy}
	has, report := machineconfig.ParseRecord(text, host)
	if has == nil {
		return report
	}
	if !has.HasUnusedOf(has) { // it has set something aside
		refused = append(refused, report...)
	}
	host.Has, host.Unsupported = &machineconfig.MachineConfig{}, machineconfig.Warn
	_, report = machineconfig.Parse(text, host)
	return append(refused, report.Errors()...)
}

// refusedByFirstBoot returns what the first boot of a machine refuses that has an Ignition of a version.
func refusedByFirstBoot(merged *authored.MachineConfig, version string) problem.Report {
	raw, report := provision.Config(merged, version)
	if report.Failed() {
		return nil // the machine gets nothing
	}
	var config struct {
		Storage struct{ Files []ignition.File }
	}
	err := json.Unmarshal(raw, &config)
	i := slices.IndexFunc(config.Storage.Files, func(f ignition.File) bool { return f.Path == machineconfig.EncapsulatedPath })
	text, wrong := ignition.Content(config.Storage.Files[i].Contents, authored.NewRoom())
	if err := errors.Join(err, wrong); err != nil {
		return problem.Report{problem.Errorf("$", "%v", err)}
	}
	_, report = machineconfig.Parse(text, machineconfig.Host{})
	return report.Errors()
}

// refusedByMachines returns specs, most of which machines refuse.
func refusedByMachines() (specs []string) {
	for _, config := range []string{
		`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}}]}`,
		`"storage":{"files":[{"path":"/usr/a"},{"path":"/opt/x"},{"path":"/var/opt/x"}]}`,
		`"storage":{"files":[{"path":"/etc/pivot/firstboot.conf","contents":{"source":"data:,reboot-method%3Dkexecc"}}]}`,
		`"storage":{"files":[{"path":"/etc/kubernetes/openshift-workload-pinning","contents":{"source":"data:,x"}}]}`,
		`"storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,a"}]}],"links":[{"path":"/etc/b","target":"/c","hard":true},{"path":"/etc/d"}]}`,
		`"storage":{"directories":[{"path":"/etc/a","mode":1023}],"disks":[{"device":"/dev/vda"}]}`,
		`"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=%m.target\n"}]}`,
		`"systemd":{"units":[{"name":"a b.service","contents":"x"},{"name":"c.service","dropins":[{"name":"../d.conf","contents":"[Unit]\n"}]}]}`,
		`"passwd":{"users":[{"name":"core","passwordHash":"!x","uid":7},{"name":"a"}],"groups":[{"name":"g"}]}`,
		`"kernelArguments":{"shouldExist":["ostree=/x"]}`,
		`"networkd":{"units":[]},"storage":{"files":[{"filesystem":"root","path":"/etc/a"}]}`,
	} {
		specs = append(specs, `{"config":{"ignition":{"version":"3.4.0"},`+config+`}}`)
	}
	for _, config := range []string{
		`"networkd":""`, `"storage":{"sockets":""}`, `"storage":{"sockets":{}}`, `"ignition2":[]`, `"passwd":{"users":[{}]}`, `"passwd":{"users":[{"name":"core","groups":[],"uid":null}]}`,
		`"passwd":{"users":[{"name":"","uid":1}]}`, `"storage":{"links":[{"path":"/etc/a","target":"b","hard":false}]}`, `"storage":{"files":[{"path":"/etc/a","append":[]}]}`,
		`"storage":{"files":[{"path":"/etc/a","append":null,"contents":{}}]}`, `"systemd":{"units":[{"name":"a.service","mask":true,"dropins":[{"name":"a.conf"}]}]}`,
	} {
		specs = append(specs, `{"config":{"ignition":{"version":"3.4.0"},`+config+`}}`)
	}
	return append(specs, `{}`, `{"config":{"ignition":{"version":"3.4.0","own":""},"storage":{"files":[{"path":"/etc/a"}]}}}`, `{"config":{}}`, `{"config":null,"fips":false,"kernelArguments":["fips=1"]}`, `{"kernelArguments":["ostree=/x","a=\"b"]}`,
		`{"kernelType":"realtime","extensions":["kernel-devel"]}`, `{"kernelType":"quantum"}`, `{"osImageURL":"UPPER/a"}`, `{"FIPS":true}`,
		`{"config":{"ignition":{"version":"3.6.0"},"storage":{"files":[{"path":"/etc/a","mode":2541}]}}}`,
		`{"config":{"storage":{"files":{}}}}`, `{"config":{"ignition":{}}}`, `{"baseOSExtensionsContainerImage":"UPPER"}`,
	)
}
