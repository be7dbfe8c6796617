// Package admission judges what users ask of the API server: MachineConfigs, their pools and rollouts and
// ContainerRuntimeConfigs, of which each problem is named before a machine has it; and pods of a workload of
// CPU partitioning, which it changes as package pods does. It also keeps the certificates of the webhooks.
//
// What is in Judge and package pods is pure. The rest connects it with an API server.
package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/containerruntime"
	"machine-pivot/internal/author/pool"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/mcfile"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Request is what somebody asks of the API server.
type Request struct {
	Kind      string // of the object
	Operation admissionv1.Operation
	User      string
	Object    []byte // as JSON; empty if it is deleted
	Old       []byte // as it was; empty if it is created
}

// Known is what the judgement needs to know of the cluster.
type Known struct {
	// Platform are the users that write the platform's own MachineConfigs.
	Platform []string
	// Users returns who has a rendered MachineConfig: nodes and pools; none if it may go.
	Users func(name string) []string
	// Others are all MachineConfigs without their Ignition configs.
	Others []*authored.MachineConfig
}

// Verdict is the judgement of a Request.
type Verdict struct {
	Name    string         // of the object; "" if the API server will choose it
	Refused string         // why this user may not do it; "" if nothing speaks against it
	Report  problem.Report // of the object
	Weakens []string       // kernel arguments for which the user needs VerbWeaken, with reasons
}

// Judge judges a request.
func Judge(r Request, known Known) Verdict {
	object, old, err := r.meta()
	if err != nil {
		return Verdict{Report: problem.Report{problem.Errorf("$", "%v", err)}}
	}
	v := Verdict{Name: object.Name}
	if r.Operation == admissionv1.Delete {
		v.Name = old.Name
	}
	if r.Kind == "MachineConfig" {
		v.Refused = r.mayNot(object, old, known)
	}
	if r.Operation == admissionv1.Delete || v.Refused != "" || r.sameSpec(object, old) {
		return v
	}
	v.Report = r.check(known)
	if r.Kind == "MachineConfig" {
		v.Weakens = weakened(r.Object, r.Old)
	}
	return v
}

// meta reads the metadata of both objects.
func (r Request) meta() (object, old metav1.ObjectMeta, err error) {
	read := func(text []byte, m *metav1.ObjectMeta) error {
		if len(text) == 0 {
			return nil
		}
		return json.Unmarshal(text, &struct {
			Metadata *metav1.ObjectMeta `json:"metadata"`
		}{m})
	}
	return object, old, errors.Join(read(r.Object, &object), read(r.Old, &old))
}

// mayNot returns why the user may not do this to a MachineConfig, whatever is in it.
func (r Request) mayNot(object, old metav1.ObjectMeta, known Known) string {
	if slices.Contains(known.Platform, r.User) {
		return ""
	}
	if r.Operation == admissionv1.Delete {
		return r.mayNotDelete(old, known)
	}
	for _, m := range []metav1.ObjectMeta{old, object} { // old first: a label that is removed has counted
		if why := ofPlatform(m); why != "" && !(r.Operation == admissionv1.Update && r.untouched(object, old)) {
			return fmt.Sprintf("MachineConfig %s is the platform's own, and only its controller may write it: %s", m.Name+m.GenerateName, why)
		}
	}
	return ""
}

// mayNotDelete lets users, and the collector of garbage, delete a rendered MachineConfig that nobody has any
// more. What is generated goes with the object that it is made from.
func (r Request) mayNotDelete(old metav1.ObjectMeta, known Known) string {
	if users := known.Users(old.Name); len(users) > 0 {
		return fmt.Sprintf("MachineConfig %s is in use by %s", old.Name, shortList(users))
	}
	why := ofPlatform(old)
	if why == "" || r.User == collector || isRendered(old.Name) {
		return ""
	}
	return fmt.Sprintf("MachineConfig %s is the platform's own, and only its controller may delete it: %s", old.Name, why)
}

// untouched reports whether an update leaves all that counts as it was: only finalizers and owners differ.
func (r Request) untouched(object, old metav1.ObjectMeta) bool {
	return maps.Equal(object.Labels, old.Labels) && maps.Equal(object.Annotations, old.Annotations) && r.equal("spec")
}

// sameSpec reports whether an update changes nothing that is judged. So an object that is wrong already can
// still get a label for another tool, or lose a finalizer.
func (r Request) sameSpec(object, old metav1.ObjectMeta) bool {
	return r.Operation == admissionv1.Update && object.Labels[authored.RoleLabel] == old.Labels[authored.RoleLabel] && r.equal("spec")
}

// equal reports whether both objects have the same member.
func (r Request) equal(member string) bool {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(r.Object, &a) != nil || json.Unmarshal(r.Old, &b) != nil {
		return false
	}
	if string(a[member]) == string(b[member]) {
		return true
	}
	var x, y any
	return json.Unmarshal(a[member], &x) == nil && json.Unmarshal(b[member], &y) == nil && reflect.DeepEqual(x, y)
}

// check checks the object.
func (r Request) check(known Known) problem.Report {
	switch r.Kind {
	case "MachineConfig":
		return checkMachineConfig(named(r.Object), known.Others)
	case "ContainerRuntimeConfig":
		_, report := containerruntime.Decode("", named(r.Object))
		return report
	case "MachineConfigPool":
		return checkPool(r.Object)
	case "PoolRollout":
		return checkRollout(r.Object)
	}
	return problem.Report{problem.Errorf("$.kind", "the webhook does not know %s: its rules are wrong", problem.Quoted(r.Kind))}
}

// checkMachineConfig checks a MachineConfig alone, as a first boot would, and together with the others of its
// roles.
func checkMachineConfig(object []byte, others []*authored.MachineConfig) problem.Report {
	rules := authored.Rules{KernelArguments: kargs.DefaultPolicy(), CheckImage: imageref.Check}
	all, report := authored.Decode("", object, rules)
	if report.Failed() || len(all) != 1 {
		return report
	}
	mc := *all[0]
	report.Add(checkMerged(mc, others, rules)...)
	mc.Spec.Config = pinned(mc.Spec.Config)
	alone, err := authored.Merge([]*authored.MachineConfig{&mc}, authored.Images{})
	if err != nil {
		report.Fail("$", "%v", err)
		return report
	}
	alone.Name = mc.Name
	report.Add(authored.Check(alone, rules)...)
	report.Add(provision.FirstBoot(alone, mcfile.Host{CheckImage: rules.CheckImage, Policy: &rules.KernelArguments}).In("")...)
	return distinct(report)
}

// pinned returns the part of a config that is judged together with kernel arguments: the files of CPU
// partitioning. Decode has judged the rest, which can be large, and a first boot finds it applied by Ignition.
func pinned(c *ignition.Config) *ignition.Config {
	chosen := ignition.Empty()
	if c == nil {
		return &chosen
	}
	for _, f := range c.Storage.Files {
		if pinning.IsPinningPath(f.Path) {
			chosen.Storage.Files = append(chosen.Storage.Files, f)
		}
	}
	return &chosen
}

// checkMerged returns the problems that the roles of a MachineConfig have only with it. Those that they have
// already must not keep anybody from mending another one.
func checkMerged(mc authored.MachineConfig, others []*authored.MachineConfig, rules authored.Rules) (added problem.Report) {
	mc.Spec.Config = nil
	without := slices.DeleteFunc(slices.Clone(others), func(o *authored.MachineConfig) bool { return o.Name == mc.Name })
	before, _ := pool.Validate(others, rules)
	after, err := pool.Validate(append(without, &mc), rules)
	if err != nil {
		added.Fail("$", "%v", err)
	}
	for _, p := range after {
		if !slices.ContainsFunc(before, func(b problem.Problem) bool { return b.String() == p.String() }) {
			added.Add(p)
		}
	}
	return added
}

// distinct removes problems that several checks have found.
func distinct(report problem.Report) (kept problem.Report) {
	seen := map[string]bool{}
	for _, p := range report {
		if key := p.Path + "\x00" + p.Message; !seen[key] {
			seen[key] = true
			kept.Add(p)
		}
	}
	return kept
}
