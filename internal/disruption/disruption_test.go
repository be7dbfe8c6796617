package disruption_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machineconfig/enable"
	systemdunits "machine-pivot/systemd-units"
)

const own = `
files:
- path: /etc/app
  actions: [{type: Reload, reload: {serviceName: app.service}}]
- path: /etc/app/static
  actions: [{type: None}]
- path: /etc/containers
  actions: [{type: None}]
- path: /etc/containers/policy.json
  actions: [{type: Reboot}]
- path: /etc/drained
  actions: [{type: Drain}, {type: DaemonReload}, {type: Restart, restart: {serviceName: app.service}}]
- path: /etc/systemd/system
  actions: [{type: None}]
- path: /opt/app
  actions: [{type: Reload, reload: {serviceName: app.service}}]
- path: /home/core/.ssh
  actions: [{type: Reload, reload: {serviceName: app.service}}]
sshkey:
  actions: [{type: Reload, reload: {serviceName: sshd.service}}]
units:
- name: app.service
  actions: [{type: Restart, restart: {serviceName: app.service}}]
`

// TestFor (P56): the rule with the longest path counts, and of two with the same path the
// machine's own. Without a rule a change needs a reboot.
func TestFor(t *testing.T) {
	rules, report := disruption.Read("rules.yaml", []byte(own))
	if report.Failed() {
		t.Fatal(report)
	}
	for _, c := range []struct{ path, want, byDefault string }{
		{"/etc/app", "[reload app.service]", "none"},
		{"/etc/app/a/b", "[reload app.service]", "none"},
		{"/etc/application", "none", "none"},
		{"/etc/app/static/x", "[nothing]", "none"},
		{"/etc/containers/policy.json", "[reboot]", "[reload crio.service]"},
		{"/etc/containers/registries.conf", "[reload crio.service]", "[reload crio.service]"}, // longer than /etc/containers
		{"/etc/containers/registries.conf.d/x.conf", "[nothing]", "none"},
		{"/etc/containers/registries.d/a.yaml", "[reload crio.service]", "[reload crio.service]"},
		{"/etc/crio/policies/ns.json", "[reload crio.service]", "[reload crio.service]"},
		{"/etc/machine-config-daemon/no-reboot/containers-gpg.pub", "[reload crio.service]", "[reload crio.service]"},
		{"/etc/nmstate/openshift/a.yml", "[]", "[]"},
		{"/etc/nmstate", "none", "none"},
		{"/etc/pivot/disruption.yaml", "[]", "[]"},
		{"/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", "[restart coreos-update-ca-trust.service restart crio.service]", "[restart coreos-update-ca-trust.service restart crio.service]"},
		{"/etc/kubernetes/credential-providers/aws.yaml", "[restart kubelet.service]", "[restart kubelet.service]"},
		{"/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", "[daemon-reload restart kubelet.service]", "[daemon-reload restart kubelet.service]"},
		{"/etc/iri-registry/config.yaml", "[restart iri-registry.service]", "[restart iri-registry.service]"},
		{"/var/usrlocal/bin/load-registry-image.sh", "[restart iri-registry.service]", "[restart iri-registry.service]"},
		{"/etc/pki/ca-trust/source/anchors/iri-root-ca.crt", "[restart coreos-update-ca-trust.service]", "[restart coreos-update-ca-trust.service]"},
		{"/etc/systemd/system/multi-user.target.wants/iri-registry.service", "[daemon-reload restart iri-registry.service]", "[daemon-reload restart iri-registry.service]"},
		{"/etc/systemd/system/app.service", "[restart app.service]", "none"},
		{"/etc/systemd/system/app.service.d/x.conf", "[restart app.service]", "none"},
		{"/etc/systemd/system/multi-user.target.wants/app.service", "[restart app.service]", "none"},
		{"/etc/systemd/system/other.target.requires/app.service", "[restart app.service]", "none"},
		{"/etc/systemd/system/b.service", "[nothing]", "none"},
		{"/etc/systemd/system/sysinit.target.wants/pivot-project.service", "[]", "[]"},
		{"/var/lib/kubelet/config.json", "[]", "[]"},
		{"/etc/ostree/auth.json", "[]", "[]"},
		{"/var/lib/kubelet/other.json", "none", "none"},
		{"/var/opt/app/x", "[reload app.service]", "none"},
		{"/var/home/core/.ssh/authorized_keys.d/ignition", "[reload sshd.service]", "[]"},
		{"/var/home/core/.ssh/authorized_keys.d", "[reload sshd.service]", "[]"},
		{"/var/home/core/.ssh", "[reload app.service]", "[]"}, // of two rules for one path, the one for files
		{"/var/home/core/.ssh/config", "[reload app.service]", "none"},
		{"/var/home/admin/.ssh/authorized_keys.d/ignition", "none", "none"},
		{"/etc/shadow/core", "[reload sshd.service]", "[]"},
		{"/etc/shadow/admin", "none", "none"},
		{"/etc/drained/x", "[daemon-reload restart app.service]", "none"},
		{"/etc/motd", "none", "none"},
	} {
		for _, of := range []struct {
			rules disruption.Rules
			want  string
		}{{rules, c.want}, {disruption.Defaults(), c.byDefault}} {
			got := "none"
			if rule, ok := of.rules.For(c.path); ok {
				got = fmt.Sprint(rule.Actions)
			}
			if got != of.want {
				t.Errorf("%s: %s, want %s", c.path, got, of.want)
			}
		}
	}
	for _, suffix := range append(enable.Suffixes(), ".upholds") { // each directory with links that enable a unit
		link := enable.Dir + "/other.target" + suffix + "/app.service"
		if rule, ok := rules.For(link); !ok || fmt.Sprint(rule.Actions) != "[restart app.service]" || disruption.UnitOf(link) != "app.service" {
			t.Errorf("%s: %v, %v, unit %q", link, ok, rule.Actions, disruption.UnitOf(link))
		}
	}
	if !strings.Contains(report.String(), "warning: $.files[4].actions[0].type: pivot drains no node") {
		t.Errorf("report %s", report)
	}
}

// TestOrder (P56): each action is there once, in the fixed order.
func TestOrder(t *testing.T) {
	reload := func(s string) disruption.Action {
		return disruption.Action{Type: disruption.Reload, Service: s + ".service"}
	}
	restart := func(s string) disruption.Action {
		return disruption.Action{Type: disruption.Restart, Service: s + ".service"}
	}
	none, daemon, reboot := disruption.Action{Type: disruption.None}, disruption.Action{Type: disruption.DaemonReload}, disruption.Action{Type: disruption.Reboot}
	for _, c := range []struct {
		actions []disruption.Action
		want    string
	}{
		{nil, "[]"},
		{[]disruption.Action{none, none}, "[]"},
		{[]disruption.Action{restart("b"), reload("z"), daemon, restart("b"), reload("a"), daemon}, "[daemon-reload reload a.service reload z.service restart b.service]"},
		{[]disruption.Action{restart("kubelet"), restart("crio"), restart("zeta"), restart("coreos-update-ca-trust")},
			"[restart coreos-update-ca-trust.service restart zeta.service restart crio.service restart kubelet.service]"},
		{[]disruption.Action{reload("crio"), restart("coreos-update-ca-trust"), reload("kubelet"), restart("a")},
			"[restart coreos-update-ca-trust.service reload crio.service restart a.service reload kubelet.service]"},
		{[]disruption.Action{reload("crio"), restart("crio")}, "[restart crio.service]"},
		{[]disruption.Action{reload("crio"), reboot, none}, "[reboot]"},
	} {
		if got := fmt.Sprint(disruption.Order(c.actions)); got != c.want {
			t.Errorf("%v: %s, want %s", c.actions, got, c.want)
		}
	}
}

// TestRead (P56): the operator's object is accepted too, and one report has all errors.
func TestRead(t *testing.T) {
	object := "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\nspec:\n  managementState: Managed\n  nodeDisruptionPolicy:" +
		strings.ReplaceAll(own, "\n", "\n    ")
	for name, text := range map[string]string{"empty": "", "a comment": "# nothing\n", "the object": object, "JSON": `{"files":[{"path":"/etc/app","actions":[{"type":"None"}]}]}`} {
		rules, report := disruption.Read("rules.yaml", []byte(text))
		if _, ok := rules.For("/etc/app/x"); report.Failed() || ok != strings.Contains(text, "/etc/app") {
			t.Errorf("%s: %s", name, report)
		}
	}
	_, report := disruption.Read("rules.yaml", []byte(`
files:
- path: etc/a
  actions: [{type: None}]
- path: /etc/a/
  actions: [{type: None}]
- path: /etc/b
- path: /etc/b
  actions: [{type: Special}, {type: None}]
- path: /etc/c
  actions: [{type: Reload}, {type: Restart, restart: {serviceName: crio}}]
  action: x
- path: /etc/d
  actions: [{type: Reboot}, {type: DaemonReload}]
units:
- name: crio
  actions: [{type: None}]
sshkey:
  actions: [{type: Nothing}]
more: 1
`))
	for _, want := range []string{
		"rules.yaml:3: error: $.files[0].path: \"etc/a\" is not a path as it would be written",
		"rules.yaml:5: error: $.files[1].path: \"/etc/a/\" is not",
		"$.files[2].actions: it is missing",
		"$.files[3].path: there is a rule for /etc/b already, at $.files[2]",
		"$.files[3].actions[0].type: \"Special\" is no action",
		"$.files[3].actions: None stands alone",
		"$.files[4].actions[0].reload.serviceName: \"\" is not the name of a unit",
		"$.files[4].actions[1].restart.serviceName: \"crio\" is not the name of a unit",
		"$.files[4].action: unknown member",
		"$.files[5].actions: Reboot stands alone",
		"$.units[0].name: \"crio\" is not the name of a unit",
		"$.sshkey.actions[0].type: \"Nothing\" is no action",
		"$.more: unknown member",
	} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

// TestReadAsTheAPI: what the API of OpenShift refuses is refused, each by its place, and what it accepts is not.
func TestReadAsTheAPI(t *testing.T) {
	file := func(actions string) string { return `{"files":[{"path":"/etc/a","actions":` + actions + `}]}` }
	object := func(policy string) string {
		return `{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","spec":{"nodeDisruptionPolicy":` + policy + `}}`
	}
	reload := `{"type":"Reload","reload":{"serviceName":"a.service"}}`
	many := func(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	entries := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"path":"/etc/%d","actions":[{"type":"None"}]}`, i))
		}
		return `{"files":[` + strings.Join(all, ",") + `]}`
	}
	restart := func(unit string) string {
		return file(`[{"type":"Restart","restart":{"serviceName":"` + unit + `"}}]`)
	}
	for _, c := range []struct{ name, policy, want string }{
		{"ten actions, some twice", file(many(10, reload)), ""},
		{"eleven actions", file(many(11, reload)), "it has 11 actions, more than 10"},
		{"no action", file(`[]`), "warning: $.files[0].actions: it has no actions"},
		{"actions missing", `{"files":[{"path":"/etc/a"}]}`, "error: $.files[0].actions: it is missing"},
		{"fifty files", entries(50), ""},
		{"fifty-one files", entries(51), "it has 51 entries, more than 50"},
		{"reload below Restart", file(`[{"type":"Restart","reload":{"serviceName":"a.service"},"restart":{"serviceName":"a.service"}}]`), "error: $.files[0].actions[0].reload: it belongs to the type Reload, and the type is Restart"},
		{"restart below None", file(`[{"type":"None","restart":{"serviceName":"a.service"}}]`), "error: $.files[0].actions[0].restart: it belongs to the type Restart"},
		{"Reload without a service", file(`[{"type":"Reload"}]`), "reload.serviceName: \"\" is not the name of a unit"},
		{"Special", file(`[{"type":"Special"}]`), `"Special" is no action`},
		{"None beside another", file(`[{"type":"None"},` + reload + `]`), "None stands alone"},
		{"a path twice", `{"files":[{"path":"/etc/a","actions":[{"type":"None"}]},{"path":"/etc/a","actions":[{"type":"None"}]}]}`, "there is a rule for /etc/a already"},
		{"a unit twice", `{"units":[{"name":"a.service","actions":[{"type":"None"}]},{"name":"a.service","actions":[{"type":"None"}]}]}`, "there is a rule for a.service already"},
		{"keys without actions", `{"sshkey":{}}`, "error: $.sshkey.actions: it is missing"},
		{"a name without a type", restart("a"), `"a" is not the name of a unit`},
		{"a name of 256 characters", restart(strings.Repeat("a", 248) + ".service"), "is not the name of a unit"},
	} {
		for form, text := range map[string]string{"": c.policy, "spec.nodeDisruptionPolicy": object(c.policy)} {
			want := c.want
			if form != "" {
				want = strings.Replace(want, "$.", "$.spec.nodeDisruptionPolicy.", 1)
			}
			if form == "" && c.name == "a name of 256 characters" {
				continue // systemd refuses it when it is run
			}
			_, report := disruption.Read("rules.yaml", []byte(text))
			_, cluster := disruption.ReadCluster("cluster.yaml", []byte(text))
			if got := report.String(); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s, on a host: %q, want %q", c.name, got, want)
			}
			if got := cluster.String(); form != "" && (want == "" && got != "" || !strings.Contains(got, want)) {
				t.Errorf("%s, of a cluster: %q, want %q", c.name, got, want)
			}
		}
	}
	_, own := disruption.Read("rules.yaml", []byte(restart("app@1.service")))
	_, api := disruption.Read("rules.yaml", []byte(object(restart("app@1.service"))))
	if own.Failed() || !api.Failed() {
		t.Errorf("an instance of a unit: own file %q, operator's object %q", own, api)
	}
}

// TestEndsSystem: a restart of a unit that ends the system is refused as an action without a
// reboot, and a cluster's is warned of.
func TestEndsSystem(t *testing.T) {
	for unit, want := range map[string]bool{
		"reboot.target": true, "poweroff.target": true, "halt.target": true, "kexec.target": true, "soft-reboot.target": true,
		"emergency.target": true, "rescue.target": true, "rescue.service": true, "runlevel6.target": true, "ctrl-alt-del.target": true,
		"systemd-reboot.service": true, "systemd-kexec.service": true, "systemd-suspend.service": true, "shutdown.target": true,
		"sysinit.target": true, "system.slice": true, "initrd-switch-root.service": true,
		"crio.service": false, "multi-user.target": false, "reboot.service": false, "systemd-networkd.service": false, "app.slice": false, "rescue.timer": false, "": false,
	} {
		if got := disruption.Ends(unit); got != want {
			t.Errorf("%q: %v", unit, got)
		}
		for _, kind := range []string{"Restart", "Reload"} {
			text := fmt.Sprintf(`{"units":[{"name":"a.service","actions":[{"type":%q,%q:{"serviceName":%q}}]}]}`, kind, strings.ToLower(kind), unit)
			_, report := disruption.Read("rules.yaml", []byte(text))
			if got := strings.Contains(report.String(), "use the type Reboot"); got != want || report.Failed() != (want || unit == "") {
				t.Errorf("%s %q: %q", kind, unit, report)
			}
			_, report = disruption.ReadCluster("cluster.yaml", []byte(`{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","spec":{"nodeDisruptionPolicy":`+text+`}}`))
			if got := strings.Contains(report.String(), "use the type Reboot"); got != (want && kind == "Restart") || report.Failed() != (unit == "") {
				t.Errorf("%s %q in a cluster: %q", kind, unit, report)
			}
		}
	}
}

// TestOwnUnits: no rule may restart a unit of pivot, which would wait for the change that restarts it.
func TestOwnUnits(t *testing.T) {
	for _, unit := range append(systemdunits.Own(), "pivotal.service") {
		text := fmt.Sprintf(`{"files":[{"path":"/etc/a","actions":[{"type":"Restart","restart":{"serviceName":%q}}]}]}`, unit)
		_, report := disruption.Read("rules.yaml", []byte(text))
		if got := strings.Contains(report.String(), unit+" is a unit of pivot"); got != (unit != "pivotal.service") || got != report.Failed() {
			t.Errorf("%s: %q", unit, report)
		}
	}
}
