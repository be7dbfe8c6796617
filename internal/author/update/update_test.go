package update_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/update"
	"machine-pivot/internal/disruption"
	"machine-pivot/kargs"
)

// of returns a MachineConfig with the given members of spec.
func of(t *testing.T, spec string) *authored.MachineConfig {
	t.Helper()
	text := `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"rendered-worker-a"},"spec":{` + spec + `}}`
	all, report := authored.Decode("mc.json", []byte(text), authored.Rules{KernelArguments: kargs.DefaultPolicy()})
	if report.Failed() || len(all) != 1 {
		t.Fatalf("%s: %v", text, report)
	}
	return all[0]
}

// config returns a spec.config with the given members.
func config(members string) string {
	return `"config":{"ignition":{"version":"3.4.0"},` + members + `}`
}

func file(path, more string) string {
	return config(fmt.Sprintf(`"storage":{"files":[{"path":%q%s}]}`, path, more))
}

const (
	hello   = `,"contents":{"source":"data:,hello"}`
	encoded = `,"contents":{"source":"data:;base64,aGVsbG8="}`
)

// TestBetween checks changes against the machine-config operator's table of what it reconciles and
// its default node disruption policy.
func TestBetween(t *testing.T) {
	const digest = "@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	for _, c := range []struct {
		name     string
		old, new string
		changes  []string // String of each change
		verdict  string   // nothing, refused, reboot, or the live actions
		note     string
	}{
		{"nothing", `"fips":false`, ``, nil, "nothing", ""},
		{"image", `"osImageURL":"r.example/a` + digest + `"`, `"osImageURL":"r.example/b` + digest + `"`,
			[]string{`change image ("r.example/a` + digest + `" to "r.example/b` + digest + `")`}, "reboot", ""},
		{"kernel arguments", `"kernelArguments":["a=1","b"]`, `"kernelArguments":["b","c"]`, []string{"change kernel arguments (-a=1 +c)"}, "reboot", ""},
		{"kernel arguments in another order", `"kernelArguments":["a=1","b"]`, `"kernelArguments":["b a=1"]`, []string{"change kernel arguments (in order or form only)"}, "reboot", ""},
		{"kernel type", `"kernelType":"default"`, `"kernelType":"realtime"`, []string{`change kernel type ("default" to "realtime")`}, "reboot", ""},
		{"the default kernel type spelled out", `"kernelType":""`, `"kernelType":"default"`, nil, "nothing", ""},
		{"extensions", `"extensions":[]`, `"extensions":["usbguard","ipsec"]`, []string{"add extensions (usbguard, ipsec)"}, "reboot", ""},
		{"extensions in another order", `"extensions":["ipsec","usbguard"]`, `"extensions":["usbguard","ipsec"]`, []string{`change extensions ("ipsec, usbguard" to "usbguard, ipsec")`}, "reboot", ""},
		{"FIPS", `"fips":false`, `"fips":true`, []string{"change FIPS (false to true)"}, "refused", ""},
		{"a file", ``, file("/etc/a", hello), []string{"add file /etc/a"}, "reboot", ""},
		{"a file without it", file("/etc/a", hello), ``, []string{"remove file /etc/a"}, "reboot", ""},
		{"a file in another encoding", file("/etc/a", hello), file("/etc/a", encoded+`,"mode":420,"overwrite":true,"user":{"name":"root"}`),
			[]string{"change file /etc/a (in form only: contents, mode, overwrite, user)"}, "reboot", ""},
		{"a file's mode and owner", file("/etc/a", hello), file("/etc/a", hello+`,"mode":384,"user":{"name":"core"},"group":{"id":5}`),
			[]string{"change file /etc/a (mode 0644 to 0600, owner root:root to core:5)"}, "reboot", ""},
		{"a remote file", file("/etc/a", `,"contents":{"source":"https://r.example/a"}`), file("/etc/a", `,"contents":{"source":"https://r.example/b"}`),
			[]string{"change file /etc/a (content)"}, "reboot", ""},
		{"a file that is appended to", file("/etc/a", hello), file("/etc/a", hello+`,"append":[{"source":"data:,x"}]`), []string{"change file /etc/a"}, "refused", ""},
		{"the pull secret", file("/var/lib/kubelet/config.json", hello), file("/var/lib/kubelet/config.json", ""),
			[]string{"change file /var/lib/kubelet/config.json (content)"}, "nothing live", ""},
		{"a signature policy", file("/etc/containers/registries.d/x.yaml", hello), ``, []string{"remove file /etc/containers/registries.d/x.yaml"}, "systemctl reload crio.service", ""},
		{"mirrors", ``, file("/etc/containers/registries.conf", hello), []string{"add file /etc/containers/registries.conf"},
			"systemctl reload crio, after a drain unless only mirrors by digest are added", ""},
		{"the CA bundle", ``, file("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", hello),
			[]string{"add file /etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"}, "systemctl restart coreos-update-ca-trust.service; systemctl restart crio.service", ""},
		{"a credential provider", ``, file("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", hello),
			[]string{"add file /etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf"}, "systemctl daemon-reload; systemctl restart kubelet.service", ""},
		{"a name that only begins so", ``, file("/etc/crio/policies.d", hello), []string{"add file /etc/crio/policies.d"}, "reboot", ""},
		{"a directory", ``, config(`"storage":{"directories":[{"path":"/etc/d","mode":448}]}`), []string{"add directory /etc/d (mode 0700 of root:root)"}, "refused", ""},
		{"a link", config(`"storage":{"links":[{"path":"/etc/l","target":"/a"}]}`), config(`"storage":{"links":[{"path":"/etc/l","target":"/b"}]}`),
			[]string{"change link /etc/l (to /a, now to /b)"}, "refused", ""},
		{"a disk", ``, config(`"storage":{"disks":[{"device":"/dev/vdb","wipeTable":true}]}`), []string{"add disk /dev/vdb"}, "refused", ""},
		{"a unit", ``, config(`"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n"}]}`), []string{"add unit a.service"}, "reboot", ""},
		{"a unit's drop-in and enablement", config(`"systemd":{"units":[{"name":"a.service","enabled":true}]}`),
			config(`"systemd":{"units":[{"name":"a.service","enabled":false,"dropins":[{"name":"x.conf","contents":"[Unit]\n"},{"name":"empty.conf"}]}]}`),
			[]string{`change unit a.service (drop-in x.conf, "enabled" to "disabled")`}, "reboot", ""},
		{"a unit's empty drop-in", config(`"systemd":{"units":[{"name":"a.service"}]}`), config(`"systemd":{"units":[{"name":"a.service","mask":false,"dropins":[{"name":"x.conf"}]}]}`),
			[]string{"change unit a.service (in form only: dropins, mask)"}, "reboot", ""},
		{"SSH keys", config(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a"]}]}`), config(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["b","a"]}]}`),
			[]string{"change SSH keys core (1 to 2)"}, "nothing live", ""},
		{"a password", ``, config(`"passwd":{"users":[{"name":"core","passwordHash":"x"}]}`), []string{"change password core"}, "nothing live", ""},
		{"another user", ``, config(`"passwd":{"users":[{"name":"admin","sshAuthorizedKeys":["a"]}]}`), []string{"add user admin"}, "refused", ""},
		{"core's shell", ``, config(`"passwd":{"users":[{"name":"core","shell":"/bin/zsh"}]}`), []string{"add user core"}, "refused", ""},
		{"groups", ``, config(`"passwd":{"groups":[{"name":"g"}]}`), []string{"add group g"}, "refused", ""},
		{"Ignition's kernel arguments", ``, config(`"kernelArguments":{"shouldExist":["a"]}`), []string{"change Ignition's kernel arguments"}, "refused", ""},
		{"one reboot is all", file("/etc/containers/policy.json", hello), `"kernelArguments":["a"]`,
			[]string{"change kernel arguments (+a)", "remove file /etc/containers/policy.json"}, "reboot", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, err := update.Between(of(t, c.old), of(t, c.new), disruption.DefaultCluster())
			if err != nil {
				t.Fatal(err)
			}
			var changes []string
			for _, change := range u.Changes {
				changes = append(changes, change.String())
				if (change.Refused == "") != (len(change.Actions) > 0) {
					t.Errorf("%s: actions %v, refused %q", change, change.Actions, change.Refused)
				}
			}
			if !slices.Equal(changes, c.changes) {
				t.Errorf("changes %q, want %q", changes, c.changes)
			}
			if got := verdict(u); got != c.verdict {
				t.Errorf("it means %q, want %q", got, c.verdict)
			}
			if notes := strings.Join(u.Notes, "\n"); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// verdict describes the update in the words of the table.
func verdict(u update.Update) string {
	switch {
	case u.Refused:
		return "refused"
	case u.Reboot:
		return "reboot"
	case len(u.Changes) == 0:
		return "nothing"
	}
	var actions []string
	for _, a := range u.Actions {
		actions = append(actions, update.Describe(a))
	}
	if slices.Equal(actions, []string{"nothing"}) {
		return "nothing live"
	}
	return strings.Join(actions, "; ")
}

// TestPolicyOfACluster: a cluster's policy overrides the defaults; the longest path takes
// precedence.
func TestPolicyOfACluster(t *testing.T) {
	text := `
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  managementState: Managed
  nodeDisruptionPolicy:
    files:
    - {path: /etc/a, actions: [{type: Restart, restart: {serviceName: a.service}}, {type: DaemonReload}]}
    - {path: /etc/a/deep, actions: [{type: None}]}
    units:
    - {name: a.service, actions: [{type: Drain}, {type: Reload, reload: {serviceName: a.service}}]}
    sshkey: {actions: [{type: Reboot}]}
`
	policy, report := disruption.ReadCluster("policy.yaml", []byte(text))
	if len(report) > 0 {
		t.Fatal(report)
	}
	for _, c := range []struct{ new, verdict string }{
		{file("/etc/a/b/c", hello), "systemctl restart a.service; systemctl daemon-reload"},
		{file("/etc/a/deep/c", hello), "nothing live"},
		{file("/etc/ab", hello), "reboot"},
		{config(`"systemd":{"units":[{"name":"a.service","enabled":true}]}`), "drain the node; systemctl reload a.service"},
		{config(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a"]}]}`), "reboot"},
		{file("/var/lib/kubelet/config.json", hello), "nothing live"},
	} {
		u, err := update.Between(of(t, ""), of(t, c.new), policy)
		if err != nil || verdict(u) != c.verdict {
			t.Errorf("%s: %q, %v; want %q", c.new, verdict(u), err, c.verdict)
		}
	}
	_, report = disruption.ReadCluster("policy.yaml", []byte(`{"kind":"MachineConfiguration","apiVersion":"operator.openshift.io/v1","spec":{"nodeDisruptionPolicy":{
		"files":[{"path":"/a","actions":[]},{"path":"/b","actions":[{"type":"Explode"}]},{"path":"/c","actions":[{"type":"Reload"}]}],"unit":[]}}}`))
	var told []string
	for _, p := range report {
		told = append(told, p.String())
	}
	for _, want := range []string{"it has no actions", `"Explode" is no action`, `"" is not the name of a unit`, "unit"} {
		if !strings.Contains(strings.Join(told, "\n"), want) {
			t.Errorf("the report does not say %q: %s", want, told)
		}
	}
}

// TestOfStatus: the policy that a cluster's operator has written into the status is the one that
// counts, if it is of the same generation; an unknown release is named.
func TestOfStatus(t *testing.T) {
	object := func(generation int) string {
		return fmt.Sprintf(`
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster, generation: %d}
spec: {nodeDisruptionPolicy: {units: [{name: a.service, actions: [{type: None}]}]}}
status:
  observedGeneration: 7
  nodeDisruptionPolicyStatus:
    clusterPolicies:
      files: [{path: /etc/new, actions: [{type: Special}]}]
      units: [{name: a.service, actions: [{type: Restart, restart: {serviceName: reboot.target}}]}]
      sshkey: {actions: [{type: Drain}]}
`, generation)
	}
	unit := config(`"systemd":{"units":[{"name":"a.service","enabled":true}]}`)
	for _, c := range []struct {
		generation            int
		new, verdict, warning string
	}{
		{7, file("/etc/new", hello), "systemctl reload crio, after a drain unless only mirrors by digest are added", ""},
		{7, file("/etc/containers/policy.json", hello), "reboot", ""},
		{7, users(withKey), "drain the node", ""},
		{7, unit, "reboot", "without the operator's drain"},
		{8, file("/etc/new", hello), "reboot", "not of this generation"},
		{8, file("/etc/containers/policy.json", hello), "systemctl reload crio.service", "not of this generation"},
		{8, unit, "nothing live", "not of this generation"},
	} {
		policy, report := disruption.ReadCluster("policy.yaml", []byte(object(c.generation)))
		if report.Failed() || !strings.Contains(report.String(), c.warning) {
			t.Errorf("generation %d: %q, want %q", c.generation, report, c.warning)
		}
		predicts(t, "", c.new, policy, c.verdict)
	}
	for version, known := range map[string]bool{"4.22.0": true, "4.22.13-rc.1": true, "5.0.0": true, "5.2.1": true, "5.3.0": false, "6.0.1": false, "4.21.9": false, "4.3.0": false, "a": false} {
		mc := of(t, "")
		mc.Annotations = map[string]string{"machineconfiguration.openshift.io/release-image-version": version}
		u, err := update.Between(of(t, ""), mc, disruption.DefaultCluster())
		if named := strings.Contains(strings.Join(u.Notes, ""), version); err != nil || named == known {
			t.Errorf("release %s: notes %q, %v", version, u.Notes, err)
		}
	}
}
