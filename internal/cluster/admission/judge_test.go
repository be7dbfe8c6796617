package admission_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/admission"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/kargs"
)

const (
	controller = "system:serviceaccount:pivot-fleet:pivot-fleet-controller"
	user       = "anna"
	group      = "machineconfiguration.openshift.io/v1"
)

// object returns an object as JSON. labels are role labels or marks, spec is JSON.
func object(kind, name, labels, spec string) string {
	version := group
	if kind == "PoolRollout" {
		version = "machine-pivot.io/v1alpha1"
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{%s}},"spec":%s}`, version, kind, name, labels, spec)
}

const worker = `"machineconfiguration.openshift.io/role":"worker"`

func mc(name, spec string) string { return object("MachineConfig", name, worker, spec) }

func known(others ...*authored.MachineConfig) admission.Known {
	return admission.Known{Platform: []string{controller}, Policy: kargs.DefaultPolicy(), Others: others, Pools: pools, Users: func(name string) []string {
		if name == "rendered-worker-used" {
			return []string{"the pool worker", "the node n1"}
		}
		return nil
	}}
}

// pools is a pool that chooses by a label which is not the role.
func pools(labels map[string]string) []string {
	if labels["gpu"] != "" {
		return []string{"gpu"}
	}
	return nil
}

// withFile returns the spec of a MachineConfig with one file.
func withFile(path, contents string) string {
	return fmt.Sprintf(`{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"contents":{"source":%q}}]}}}`, path, contents)
}

// owned returns an object with an owner that has a UID.
func owned(object, uid string) string {
	return strings.Replace(object, `"metadata":{`, `"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"`+uid+`"}],`, 1)
}

// weak is a spec with an argument in its Ignition config that weakens security.
const weak = `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["audit=0"]}}}`

// refersTo returns a spec with an Ignition config that refers by a member (merge or replace) to the one of another spec.
func refersTo(member, spec string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(spec, `{"config":`), "}")
	reference := fmt.Sprintf(`{"source":%q}`, "data:;base64,"+base64.StdEncoding.EncodeToString([]byte(inner)))
	if member == "merge" {
		reference = "[" + reference + "]"
	}
	return fmt.Sprintf(`{"config":{"ignition":{"version":"3.4.0","config":{%q:%s}}}}`, member, reference)
}

func TestJudge(t *testing.T) {
	other := &authored.MachineConfig{Name: "50-other", Labels: map[string]string{authored.RoleLabel: "worker"}, Spec: machineconfig.Spec{KernelArguments: []string{"nosmt"}}}
	broken := mc("a", `{"kernelArguments":["root=/dev/sda"]}`)
	for _, c := range []struct {
		name        string
		user        string
		object, old string
		refused     string   // a part of the reason
		problems    []string // parts of the errors, in their order
		warns       string   // a part of the warnings
		weakens     string   // a part of the arguments that need a right
	}{
		{name: "a good one", object: mc("a", `{"kernelArguments":["quiet"]}`)},
		{name: "all problems at once", object: mc("a", `{"kernelArguments":["root=/dev/sda","ostree=x"],"kernelType":"rt","osImageURL":"??"}`),
			problems: []string{"osImageURL", "kernelArguments[0]", "kernelArguments[1]", "kernelType"}},
		{name: "FIPS in a contradiction", object: mc("a", `{"fips":true,"kernelArguments":["fips=0"]}`), problems: []string{"fips"}},
		{name: "hyperthreading in a contradiction", object: mc("a", `{"kernelArguments":["nosmt","smt-enabled=on"]}`), problems: []string{"nosmt forbids it"}},
		{name: "a contradiction to another MachineConfig", object: mc("a", `{"kernelArguments":["smt-enabled=on"]}`), problems: []string{"nosmt forbids it"}},
		{name: "no problem with itself", object: mc("50-other", `{"kernelArguments":["smt-enabled=on"]}`)},
		{name: "a file of the daemon's", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/run/machine-config-daemon-force"}]}}}`),
			problems: []string{"it is in memory"}},
		{name: "a file that pivot cannot read", object: mc("a", withFile("/etc/pivot/kernel-args.policy", "data:,refuse%20debug")), problems: []string{"say why"}},
		{name: "no Ignition config", object: mc("a", `{"config":{"ignition":{"version":"9.9.9"}}}`), problems: []string{"version"}},
		{name: "a generated name", object: strings.Replace(mc("a", `{}`), `"name":"a"`, `"generateName":"a-"`, 1)},

		{name: "rendered, by a user", object: mc("rendered-worker-1", `{}`), refused: "rendered from others"},
		{name: "rendered, by a generated name", object: strings.Replace(mc("a", `{}`), `"name":"a"`, `"generateName":"rendered-worker-"`, 1), refused: "rendered from others"},
		{name: "rendered, by the controller", user: controller, object: mc("rendered-worker-1", `{}`)},
		{name: "a fetched copy, by a user", object: mc("fetched-foo", `{}`), refused: "only the renderer gives"},
		{name: "a fetched copy, by the controller", user: controller, object: mc("fetched-0123", `{}`)},
		{name: "generated, by a user", object: mc("99-worker-generated-containerruntime", `{}`), refused: "generated from another"},
		{name: "a name that only looks alike", object: mc("worker-generated-by-us", `{}`)},
		{name: "the label, by a user", object: object("MachineConfig", "a", `"machine-pivot.io/platform":""`, `{}`), refused: "machine-pivot.io/platform"},
		{name: "the label is removed", object: mc("a", `{}`), old: object("MachineConfig", "a", `"machine-pivot.io/platform":"",`+worker, `{}`), refused: "machine-pivot.io/platform"},
		{name: "another account of the namespace", user: "system:serviceaccount:pivot-fleet:default", object: mc("rendered-worker-1", `{}`), refused: "rendered"},
		{name: "only a finalizer", object: strings.Replace(mc("rendered-a", `{}`), `"name"`, `"finalizers":["a/b"],"name"`, 1), old: mc("rendered-a", `{}`)},
		{name: "an owner", object: owned(mc("99-worker-generated-kubelet", `{}`), "doomed"), old: mc("99-worker-generated-kubelet", `{}`), refused: "generated from another"},
		{name: "another owner", object: owned(mc("rendered-a", `{}`), "doomed"), old: owned(mc("rendered-a", `{}`), "true"), refused: "rendered from others"},
		{name: "no owner any more", object: mc("rendered-a", `{}`), old: owned(mc("rendered-a", `{}`), "true"), refused: "rendered from others"},
		{name: "the same owner, and a finalizer", object: strings.Replace(owned(mc("rendered-a", `{}`), "true"), `"name":"rendered-a"`, `"finalizers":["a/b"],"name":"rendered-a"`, 1), old: owned(mc("rendered-a", `{}`), "true")},
		{name: "owners, by the collector", user: "system:serviceaccount:kube-system:generic-garbage-collector", object: mc("rendered-a", `{}`), old: owned(mc("rendered-a", `{}`), "gone")},
		{name: "an owner of a user's own", object: owned(mc("a", `{}`), "doomed"), old: mc("a", `{}`)},

		{name: "a rendered one in use is deleted", old: mc("rendered-worker-used", `{}`), refused: "in use by the pool worker, the node n1"},
		{name: "a rendered one is deleted", old: mc("rendered-worker-unused", `{}`)},
		{name: "a generated one is deleted", old: mc("99-worker-generated-kubelet", `{}`), refused: "only its controller may delete"},
		{name: "by the collector", user: "system:serviceaccount:kube-system:generic-garbage-collector", old: mc("99-worker-generated-kubelet", `{}`)},
		{name: "in use, by the collector", user: "system:serviceaccount:kube-system:generic-garbage-collector", old: mc("rendered-worker-used", `{}`), refused: "in use"},

		{name: "a broken one gets no worse", object: strings.Replace(broken, `"name"`, `"finalizers":["a/b"],"name"`, 1), old: broken},
		{name: "a broken one for another role", object: strings.Replace(broken, "worker", "infra", 1), old: broken, problems: []string{"root"}},

		{name: "weaker", object: mc("a", `{"kernelArguments":["quiet audit=0"]}`), weakens: `audit=0`, warns: "auditing"},
		{name: "weaker, in the Ignition config", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["selinux=0"]}}}`), weakens: "selinux=0"},
		{name: "as weak as before", object: mc("a", `{"kernelArguments":["audit=0","quiet"]}`), old: mc("a", `{"kernelArguments":["audit=0"]}`), warns: "auditing"},
		{name: "as weak as before, in another spelling", object: mc("a", `{"kernelArguments":["\"audit=0\""]}`), old: mc("a", `{"kernelArguments":["audit=0"]}`), warns: "auditing"},
		{name: "as weak as before, and more", object: mc("a", `{"kernelArguments":["audit=0 selinux=0"]}`), old: mc("a", `{"kernelArguments":["audit=0"]}`), weakens: `"selinux=0"`, warns: "auditing"},
		{name: "as weak as an invalid one", object: mc("a", `{"kernelArguments":["audit=0"]}`), old: mc("a", `{"kernelArguments":["audit=0","root=x"],"config":{"ignition":5}}`), warns: "auditing"},
		{name: "moved to the Ignition config", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["audit=0"]}}}`), old: mc("a", `{"kernelArguments":["audit=0"]}`)},
		{name: "as weak, for another role", object: strings.Replace(mc("a", `{"kernelArguments":["audit=0"]}`), "worker", "master", 1), old: mc("a", `{"kernelArguments":["audit=0"]}`), weakens: "audit=0", warns: "auditing"},
		{name: "as weak, for no role", object: object("MachineConfig", "a", "", `{"kernelArguments":["audit=0"]}`), old: mc("a", `{"kernelArguments":["audit=0"]}`), warns: "auditing"},
		{name: "as weak, for another pool", object: object("MachineConfig", "a", worker+`,"gpu":"yes"`, `{"kernelArguments":["audit=0"]}`), old: mc("a", `{"kernelArguments":["audit=0"]}`), weakens: "audit=0", warns: "auditing"},
		{name: "as weak, with a label of another tool", object: object("MachineConfig", "a", worker+`,"tool":"yes"`, `{"kernelArguments":["audit=0"]}`), old: mc("a", `{"kernelArguments":["audit=0"]}`)},
		{name: "refused, in the Ignition config", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["init=/bin/sh"]}}}`), problems: []string{"shouldExist[0]"}},
		{name: "a contradiction in the Ignition config", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["fips=1"]}}}`), problems: []string{"contradicts spec.fips"}},
		{name: "a contradiction to another MachineConfig, in the Ignition config", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["smt-enabled=on"]}}}`), problems: []string{"nosmt forbids it"}},
		{name: "quotes across entries", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["x=\"","\" audit=0 \""]}}}`), problems: []string{"shouldExist[0]"}},
		{name: "in a file of pivot", object: mc("a", withFile("/etc/pivot/kernel-args", "data:,ADD%20audit=0")), weakens: "audit=0"},
		{name: "appended to a file of bootc", object: mc("a", strings.Replace(strings.Replace(withFile("/etc/kernel/cmdline.d/a.conf", "data:,kargs%20%3D%20%5B%22quiet%22,%22audit%3D0%22%5D"), `"contents":{`, `"append":[{`, 1), `"}}]`, `"}]}]`, 1)), weakens: "audit=0"},
		{name: "in GRUB's", object: mc("a", withFile("/etc/default/grub", "data:,GRUB_CMDLINE_LINUX=%22audit=0%20quiet%22")), weakens: "audit=0"},
		{name: "in a boot entry, which no machine takes", object: mc("a", withFile("/boot/loader/entries/a.conf", "data:,options%20root=a%20audit=0")), problems: []string{"the boot loader's"}},
		{name: "with a quoted value", object: mc("a", withFile("/etc/kernel/cmdline", "data:,selinux=%220%22")), weakens: "selinux=0"},
		{name: "with quotes within", object: mc("a", withFile("/etc/default/grub", "data:,GRUB_CMDLINE_LINUX=%22selin%22'ux=0%20quiet'")), weakens: "selinux=0"},
		{name: "of variables", object: mc("a", withFile("/etc/default/grub", "data:,A=selin%0AGRUB_CMDLINE_LINUX=%22$%7BA%7Dux=0%22")), weakens: "cannot be seen"},
		{name: "of commands", object: mc("a", withFile("/etc/grub.d/40_custom", "data:,echo%20%60cat%20/etc/a%60")), weakens: "cannot be seen"},
		{name: "escaped in TOML", object: mc("a", withFile("/etc/kernel/cmdline.d/b.conf", "data:,kargs%20=%20%5B%22selinux%5Cu003d0%22%5D")), weakens: "cannot be seen"},
		{name: "over two lines", object: mc("a", withFile("/etc/default/grub", "data:,GRUB_CMDLINE_LINUX=%22selin%5C%0Aux=0%22")), weakens: "cannot be seen"},
		{name: "without weakening, and quotes", object: mc("a", withFile("/etc/default/grub", "data:,GRUB_CMDLINE_LINUX=%22quiet%20console='ttyS0'%22%0AGRUB_TIMEOUT=5"))},
		{name: "in a comment", object: mc("a", withFile("/etc/default/grub", "data:,%23%20audit=0"))},
		{name: "in another file", object: mc("a", withFile("/etc/example", "data:,audit=0"))},
		{name: "in a file that is fetched", object: mc("a", withFile("/etc/kernel/cmdline", "https://example.com/a")), weakens: "cannot be seen"},
		{name: "in the same file that is fetched", object: mc("a", strings.Replace(withFile("/etc/kernel/cmdline", "https://example.com/a"), `{"config"`, `{"fips":true,"config"`, 1)), old: mc("a", withFile("/etc/kernel/cmdline", "https://example.com/a"))},
		{name: "by a link", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/kernel/cmdline","target":"/etc/example"}]}}}`), weakens: "the link /etc/kernel/cmdline"},
		{name: "by a link above it", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/default","target":"/etc/example"}]}}}`), weakens: "the link /etc/default"},
		{name: "by a link to a directory of it", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/kernel","target":"/etc/example"}]}}}`), weakens: "the link /etc/kernel"},
		{name: "by a link elsewhere", object: mc("a", `{"config":{"ignition":{"version":"3.4.0"},"storage":{"links":[{"path":"/etc/defaults","target":"/etc/example"}]}}}`)},
		{name: "in a config that is merged", object: mc("a", refersTo("merge", weak)), weakens: "audit=0", warns: "audit=0"},
		{name: "in a config that replaces it", object: mc("a", refersTo("replace", weak)), weakens: "audit=0", warns: "audit=0"},
		{name: "in a config that is merged into one that is merged", object: mc("a", refersTo("merge", refersTo("merge", weak))), weakens: "audit=0", warns: "audit=0"},
		{name: "in a file of a config that is merged", object: mc("a", refersTo("merge", withFile("/etc/kernel/cmdline", "data:,audit=0"))), weakens: "audit=0"},
		{name: "in a config beside one that is fetched", object: mc("a", strings.Replace(refersTo("merge", weak), `"merge":[`, `"merge":[{"source":"https://example.com/a"},`, 1)), weakens: "audit=0", warns: "audit=0"},
		{name: "in a config that is fetched", object: mc("a", `{"config":{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://example.com/a"}]}}}}`), weakens: "the config https://example.com/a"},
		{name: "in the same config that is fetched", object: mc("a", `{"fips":true,"config":{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://example.com/a"}]}}}}`), old: mc("a", `{"config":{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://example.com/a"}]}}}}`)},
		{name: "refused in a config that is merged", object: mc("a", refersTo("merge", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["init=/bin/sh"]}}}`)), problems: []string{"init"}},
		{name: "a contradiction in a config that is merged", object: mc("a", refersTo("merge", `{"config":{"ignition":{"version":"3.4.0"},"kernelArguments":{"shouldExist":["fips=1"]}}}`)), problems: []string{"contradicts spec.fips"}},
		{name: "a path that no machine takes, in a config that is merged", object: mc("a", refersTo("merge", withFile("/run/a", "data:,"))), problems: []string{"in memory"}},
		{name: "a value that the kernel reads as 0", object: mc("a", `{"kernelArguments":["selinux=+0"]}`), weakens: "selinux=+0", warns: "SELinux"},
		{name: "a name of no module", object: mc("a", `{"kernelArguments":["security=x"]}`), weakens: "security=x", warns: "SELinux"},
		{name: "stronger", object: mc("a", `{"kernelArguments":["mitigations=auto,nosmt","lockdown=confidentiality","audit=1"]}`)},
		{name: "a lower lockdown", object: mc("a", `{"kernelArguments":["lockdown=integrity"]}`), old: mc("a", `{"kernelArguments":["lockdown=confidentiality"]}`), weakens: "lockdown"},

		{name: "a pool of nodes without a label of their own", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchExpressions":[{"key":"example.com/tier","operator":"NotIn","values":["prod"]},{"key":"node-restriction.kubernetes.io/a","operator":"DoesNotExist"}]}}`), warns: "the label example.com/tier"},
		{name: "a pool of nodes without a role", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchExpressions":[{"key":"node-role.kubernetes.io/control-plane","operator":"DoesNotExist"}]}}`)},
		{name: "a rollout by a node's own label", object: object("PoolRollout", "gpu", "", `{"nodeSelector":{"matchLabels":{"gpu":"true"}}}`), warns: "the label gpu"},
		{name: "a rollout of all nodes", object: object("PoolRollout", "gpu", "", `{"nodeSelector":{}}`), problems: []string{"would match each node of the cluster"}},
		{name: "a pool by a node's own label", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchLabels":{"gpu":"true"}}}`), warns: "a node may give itself the label gpu, or remove it, and so get the MachineConfigs of the pool: use a label with the prefix node-restriction.kubernetes.io/"},
		{name: "beside a role", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchLabels":{"example.com/gpu":"true","node-role.kubernetes.io/worker":""}}}`), warns: "the label example.com/gpu"},
		{name: "by one that kubelet has", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["a"]}]}}`), warns: "the label topology.kubernetes.io/zone"},
		{name: "by one of kubelet's namespaces", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchExpressions":[{"key":"x.node.kubernetes.io/zone","operator":"Exists"}]}}`), warns: "the label x.node.kubernetes.io/zone"},
		{name: "by a role", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchLabels":{"node-role.kubernetes.io/gpu":""}}}`)},
		{name: "by a protected label", object: object("MachineConfigPool", "gpu", "", `{"nodeSelector":{"matchLabels":{"example.com.node-restriction.kubernetes.io/gpu":"","gpu":"true"}}}`)},
		{name: "without a label", object: object("MachineConfigPool", "worker", "", `{"nodeSelector":{"matchLabels":{"node-role.kubernetes.io/worker":""},"matchExpressions":[{"key":"gpu","operator":"DoesNotExist"}]}}`)},
		{name: "a pool of all nodes", object: object("MachineConfigPool", "worker", "", `{"nodeSelector":{}}`), problems: []string{"each node of the cluster"}},
		{name: "a pool that is meant not to begin", object: object("MachineConfigPool", "worker", "", `{"maxUnavailable":"0%"}`), warns: "with 0%, one node of the pool worker at a time is changed; to stop a rollout, set spec.paused"},
		{name: "a limit that is none", object: object("MachineConfigPool", "worker", "", `{"maxUnavailable":"many"}`), warns: "counts as 1"},
		{name: "a limit that does not hold", object: object("MachineConfigPool", "master", "", `{"maxUnavailable":3}`), warns: "with 3, one node of the pool master at a time"},
		{name: "selectors of a pool", object: object("MachineConfigPool", "worker", "", `{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"In"}]},"machineConfigSelector":{"matchLabels":{"a b":"c"}}}`),
			problems: []string{"nodeSelector", "machineConfigSelector"}},
		{name: "a rollout", object: object("PoolRollout", "worker", "", `{"window":"Sat 22:00-04:00 UTC","checks":{"node":"node.metadata.name == 'a'","workloads":[{"kind":"Deployment","namespace":"shop","name":"front.end"}]},"after":["master"]}`)},
		{name: "a rollout with problems", object: object("PoolRollout", "worker", "", `{"window":"never","checks":{"node":"1+"},"after":["worker"]}`),
			problems: []string{"window", "checks.node", "wait for itself"}},
		{name: "a check of what is not kept", object: object("PoolRollout", "worker", "", `{"checks":{"node":"node.status.images.size() > 0"}}`), problems: []string{"undefined field 'images'"}},
		{name: "a slot that is never passed on", object: object("PoolRollout", "master", "", `{"passSlotOn":true}`), warns: "never passes a slot on"},
		{name: "a slot that is passed on", object: object("PoolRollout", "worker", "", `{"passSlotOn":true}`)},
		{name: "workloads with no names", object: object("PoolRollout", "worker", "", `{"checks":{"workloads":[{"kind":"Deployment","namespace":"my.shop","name":"front/end"}]}}`),
			problems: []string{"checks.workloads[0].namespace", "checks.workloads[0].name: "}},
		{name: "settings of CRI-O", object: object("ContainerRuntimeConfig", "a", "", `{"containerRuntimeConfig":{"pidsLimit":5,"logLevel":"loud"}}`),
			problems: []string{"PidsLimit", "LogLevel"}},
		{name: "no JSON", object: `{"metadata":{"name":5}}`, problems: []string{"$"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := admission.Request{Kind: "MachineConfig", User: c.user, Object: []byte(c.object), Old: []byte(c.old), Operation: admissionv1.Create}
			if c.old != "" {
				r.Operation = admissionv1.Update
			}
			if c.object == "" {
				r.Operation = admissionv1.Delete
			}
			if c.user == "" {
				r.User = user
			}
			var o struct{ Kind string }
			if text := c.object + c.old; json.Unmarshal([]byte(c.object), &o) == nil && o.Kind != "" && text != "" {
				r.Kind = o.Kind
			}
			v := admission.Judge(r, known(other))
			if !strings.Contains(v.Refused, c.refused) || (v.Refused == "") != (c.refused == "") {
				t.Errorf("refused: %q", v.Refused)
			}
			errors := v.Report.Errors()
			if len(errors) < len(c.problems) || len(c.problems) == 0 && len(errors) > 0 {
				t.Fatalf("problems:\n%s", errors)
			}
			for _, part := range c.problems {
				if !strings.Contains(errors.String(), part) {
					t.Errorf("no problem has %q:\n%s", part, errors)
				}
			}
			if !strings.Contains(v.Report.String(), c.warns) {
				t.Errorf("warnings:\n%s", v.Report)
			}
			weakens := strings.Join(v.Weakens, "; ")
			if !strings.Contains(weakens, c.weakens) || (weakens == "") != (c.weakens == "") {
				t.Errorf("weakens: %q", weakens)
			}
		})
	}
}

func TestWeakening(t *testing.T) {
	for arg, weak := range map[string]bool{
		"audit=0": true, "audit=off": true, "audit=00": true, "audit=1": false, "audit": false,
		"selinux=0": true, "selinux=0x0": true, "enforcing=0": true, `"selinux=0"`: true, `selinux="0"`: true, "security=none": true,
		"lsm=lockdown,yama": true, "lsm=lockdown,selinux": false,
		"mitigations=off": true, "mitigations=auto": false, "mitigations=auto,nosmt": false, "mitigations=auto;no_user_kernel": true,
		"lockdown=none": true, "lockdown=integrity": false,
		"module.sig_enforce=0": true, "module.sig-enforce=0": true, "module.sig_enforce=n": true, "module.sig_enforce=1": false, "module.sig_enforce=N": true, "module.sig_enforce=0x": true, "AUDIT=0": false, "nosmt=force": false,
		"iommu=force,off": true, "container=x": true, "rd.systemd.run=/bin/a": true, "rd.systemd.wants=a": true, "norandmaps": true, "no-hash-pointers": true, "hardened_usercopy=0": true, "hardened_usercopy=1": false, "ibt=off": true,
		"nosmep": true, "nosmap": true, "nokaslr": true, "nopti": true, "pti=off": true, "pti=on": false, "iommu=pt": true, `a="b nokaslr"`: true, "'nokaslr'": true, "intel_iommu=off": true,
		"nosmt": false, "quiet": false, "isolcpus=1-3": false, "nohz_full=0-3": false, "console=ttyS0": false,
	} {
		text, err := json.Marshal(arg)
		if err != nil {
			t.Fatal(err)
		}
		r := admission.Request{Kind: "MachineConfig", Operation: admissionv1.Create, User: user, Object: []byte(mc("a", `{"kernelArguments":[`+string(text)+`]}`))}
		if v := admission.Judge(r, known()); (len(v.Weakens) > 0) != weak {
			t.Errorf("%s: %q", arg, v.Weakens)
		}
	}
}

// BenchmarkJudge is a MachineConfig of 1 MB, with 200 files, and one with a single file, beside 50 others.
func BenchmarkJudge(b *testing.B) {
	b.Run("1MB", func(b *testing.B) { benchmark(b, large(200, 5000)) })
	b.Run("5kB", func(b *testing.B) { benchmark(b, large(1, 5000)) })
	b.Run("usual50kB", func(b *testing.B) { benchmark(b, usual(50_000)) })
	b.Run("usual1MB", func(b *testing.B) { benchmark(b, usual(1_000_000)) })
}

func benchmark(b *testing.B, spec string) {
	r := admission.Request{Kind: "MachineConfig", Operation: admissionv1.Create, User: user, Object: []byte(mc("large", spec))}
	others := []*authored.MachineConfig{}
	for i := range 50 {
		others = append(others, &authored.MachineConfig{Name: fmt.Sprintf("%02d", i), Labels: map[string]string{authored.RoleLabel: "worker"}})
	}
	b.SetBytes(int64(len(r.Object)))
	beside := known(others...)
	for b.Loop() {
		if v := admission.Judge(r, beside); v.Report.Failed() {
			b.Fatal(v.Report)
		}
	}
}

// large returns the spec of a MachineConfig with files.
func large(files, size int) string {
	var all []string
	for i := range files {
		all = append(all, fmt.Sprintf(`{"path":"/etc/large/%d","mode":420,"contents":{"source":"data:,%s"}}`, i, strings.Repeat("x", size)))
	}
	return `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[` + strings.Join(all, ",") + `]}}}`
}
