package update

import (
	"path"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// ActionType is an action on a machine, named as in a NodeDisruptionPolicy.
type ActionType string

const (
	None         ActionType = "None"
	Drain        ActionType = "Drain"
	DaemonReload ActionType = "DaemonReload"
	Reload       ActionType = "Reload"
	Restart      ActionType = "Restart"
	Reboot       ActionType = "Reboot"
	// Special is the action for registries.conf: reload CRI-O, after draining the node unless the
	// change only adds mirrors by digest.
	Special ActionType = "Special"
)

// Action is one action that a change needs on a machine.
type Action struct {
	Type    ActionType `json:"type"`
	Service string     `json:"service,omitempty"` // for Reload and Restart
}

// String describes the action for users.
func (a Action) String() string {
	switch a.Type {
	case None:
		return "nothing"
	case Drain:
		return "drain the node"
	case DaemonReload:
		return "systemctl daemon-reload"
	case Reload, Restart:
		return "systemctl " + strings.ToLower(string(a.Type)) + " " + a.Service
	case Special:
		return "systemctl reload crio, after a drain unless only mirrors by digest are added"
	}
	return "reboot"
}

// order returns the position of the action: drain first, and reload units before services start.
func (a Action) order() int {
	order := map[ActionType]int{Drain: 1, DaemonReload: 2, Reload: 3, Special: 3, Restart: 4, Reboot: 5}
	return order[a.Type]
}

// Policy selects the actions for a change of a file, a unit or SSH keys.
type Policy struct {
	files, units map[string][]Action
	keys         []Action
}

// DefaultPolicy returns the policy of a cluster without a policy of its own.
func DefaultPolicy() Policy {
	reload := func(services ...string) (all []Action) {
		for _, s := range services {
			all = append(all, Action{Reload, s})
		}
		return all
	}
	crio := reload("crio.service")
	return Policy{
		files: map[string][]Action{
			"/var/lib/kubelet/config.json":                                         {{Type: None}},
			"/etc/nmstate/openshift":                                               {{Type: None}},
			"/etc/machine-config-daemon/no-reboot/containers-gpg.pub":              crio,
			"/etc/containers/policy.json":                                          crio,
			"/etc/containers/registries.d":                                         crio,
			"/etc/crio/policies":                                                   crio,
			"/etc/containers/registries.conf":                                      {{Type: Special}},
			"/etc/kubernetes/credential-providers":                                 {{Restart, "kubelet.service"}},
			"/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt": {{Restart, "coreos-update-ca-trust.service"}, {Restart, "crio.service"}},
			"/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf": {
				{Type: DaemonReload}, {Restart, "kubelet.service"}},
		},
		units: map[string][]Action{},
		keys:  []Action{{Type: None}},
	}
}

// ofFile returns the actions for a change of a file, by the longest path that is the file or a
// parent of it.
func (p Policy) ofFile(name string) (actions []Action, because string) {
	for at := name; ; at = path.Dir(at) {
		if actions, ok := p.files[at]; ok {
			return actions, "the policy for " + at
		}
		if at == "/" || at == "." {
			return []Action{{Type: Reboot}}, "no policy for it"
		}
	}
}

func (p Policy) ofUnit(name string) (actions []Action, because string) {
	if actions, ok := p.units[name]; ok {
		return actions, "the policy for " + name
	}
	return []Action{{Type: Reboot}}, "no policy for it"
}

func (p Policy) ofKeys() (actions []Action, because string) {
	return p.keys, "the policy for SSH keys"
}

// ReadPolicy reads the policy of a cluster: a MachineConfiguration, whose spec.nodeDisruptionPolicy
// overrides the defaults entry by entry. The report has all errors.
func ReadPolicy(file string, data []byte) (Policy, problem.Report) {
	p := DefaultPolicy()
	report := document.Read(file, data, func(root document.Node) {
		if !root.Object() {
			return
		}
		root.Get("kind").MustBe("MachineConfiguration")
		root.Get("apiVersion").MustBe("operator.openshift.io/v1")
		policy := root.Get("spec").Get("nodeDisruptionPolicy")
		policy.Known("a NodeDisruptionPolicy", "files", "units", "sshkey")
		for _, f := range policy.Get("files").Items() {
			f.Known("a NodeDisruptionPolicy", "path", "actions")
			p.files[path.Clean(f.Get("path").Text())] = actionsOf(f.Get("actions"))
		}
		for _, u := range policy.Get("units").Items() {
			u.Known("a NodeDisruptionPolicy", "name", "actions")
			p.units[u.Get("name").Text()] = actionsOf(u.Get("actions"))
		}
		if keys := policy.Get("sshkey"); !keys.IsNull() {
			p.keys = actionsOf(keys.Get("actions"))
		}
	})
	return p, report
}

// actionsOf reads the actions of an entry.
func actionsOf(n document.Node) []Action {
	var all []Action
	for _, item := range n.Items() {
		a := Action{Type: ActionType(item.Get("type").Text())}
		switch a.Type {
		case None, Drain, DaemonReload, Reboot, Special:
		case Reload, Restart:
			service := item.Get(strings.ToLower(string(a.Type))).Get("serviceName")
			if a.Service = service.Text(); a.Service == "" {
				service.Fail("it is missing: say which service")
			}
		default:
			item.Get("type").Fail("there is no action %s; there are None, Drain, DaemonReload, Reload, Restart and Reboot", problem.Quoted(string(a.Type)))
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		n.Fail("it is empty: say what happens, if nothing, None")
	}
	return all
}
