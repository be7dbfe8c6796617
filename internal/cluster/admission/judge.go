// Package admission judges what users ask of the API server. It names each problem of MachineConfigs, their pools and
// rollouts and ContainerRuntimeConfigs before a machine has it. It changes pods of a workload of CPU partitioning as
// package pods does. It also keeps the certificates of the webhooks.
//
// What is in Judge and package pods is pure. The rest connects it with an API server.
package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/containerruntime"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
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
	// Policy is that of kernel arguments: kargs.DefaultPolicy, which takes a while to read.
	Policy kargs.Policy
	// Users returns who has a rendered MachineConfig: nodes and pools; none if it may go.
	Users func(name string) []string
	// Pools returns the names of the pools with a selector of MachineConfigs that matches labels. nil: there are none.
	Pools func(labels map[string]string) []string
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
	object, wrong := read(r.Object)
	old, wrongOld := read(r.Old)
	if err := errors.Join(wrong, wrongOld); err != nil {
		return Verdict{Report: problem.Report{problem.Errorf("$", "%v", err)}}
	}
	v := Verdict{Name: object.Metadata.Name}
	if r.Operation == admissionv1.Delete {
		v.Name = old.Metadata.Name
	}
	switch r.Kind {
	case "MachineConfig":
		v.Refused = r.mayNot(object, old, known)
	case "MachineConfigPool":
		v.Refused = r.mayNotConfigure(object, old, known)
	}
	moved := r.Operation == admissionv1.Update && r.Kind == "MachineConfig" && known.reachesMore(object, old)
	if r.Operation == admissionv1.Delete || v.Refused != "" || r.sameSpec(object, old) && !moved {
		return v
	}
	if moved {
		old.Spec = nil // what it has is new to some machines
	}
	if r.Kind == "MachineConfig" {
		v.Report, v.Weakens = checkMachineConfig(named(r.Object, object.Metadata), old, known)
		return v
	}
	v.Report = r.check(object.Metadata)
	return v
}

// object is an object of which only the metadata is read.
type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
}

// read reads an object; none if there is none.
func read(text []byte) (o object, err error) {
	if len(text) > 0 {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}

// mayNot returns why the user may not do this to a MachineConfig, whatever is in it.
func (r Request) mayNot(o, old object, known Known) string {
	if slices.Contains(known.Platform, r.User) {
		return ""
	}
	if r.Operation == admissionv1.Delete {
		return r.mayNotDelete(old.Metadata, known)
	}
	for _, m := range []metav1.ObjectMeta{old.Metadata, o.Metadata} { // old first: a label that is removed has counted
		if why := ofPlatform(m); why != "" && !(r.Operation == admissionv1.Update && r.untouched(o, old)) {
			return fmt.Sprintf("MachineConfig %s is the platform's own, and only its controller may write it: %s", m.Name+m.GenerateName, why)
		}
	}
	return ""
}

// mayNotConfigure returns why the user may not change spec.configuration of a pool. Only the renderer may: a user who
// cannot read MachineConfigs could give the secrets of another pool to own machines.
func (r Request) mayNotConfigure(o, old object, known Known) string {
	if r.Operation == admissionv1.Delete || slices.Contains(known.Platform, r.User) || configured(o.Spec) == configured(old.Spec) {
		return ""
	}
	return fmt.Sprintf("spec.configuration of the MachineConfigPool %s is the renderer's: leave it as it is, and out of a new pool", o.Metadata.Name)
}

// configured returns the MachineConfig that the spec of a pool names.
func configured(spec json.RawMessage) string {
	var pool struct {
		Configuration struct {
			Name string `json:"name"`
		} `json:"configuration"`
	}
	_ = json.Unmarshal(spec, &pool) // the check of the pool reports the error
	return pool.Configuration.Name
}

// mayNotDelete lets users, and the collector of garbage, delete a rendered MachineConfig that nobody has any more. What
// is generated is deleted with the object that it is made from.
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

// untouched reports whether an update leaves all that counts as it was: only finalizers differ. Owners count, because the
// collector of garbage deletes an object with its owners; it alone may change them.
func (r Request) untouched(o, old object) bool {
	owners := r.User == collector || apiequality.Semantic.DeepEqual(o.Metadata.OwnerReferences, old.Metadata.OwnerReferences)
	return owners && maps.Equal(o.Metadata.Labels, old.Metadata.Labels) && maps.Equal(o.Metadata.Annotations, old.Metadata.Annotations) && bytes.Equal(o.Spec, old.Spec)
}

// sameSpec reports whether an update changes nothing that is judged. So an object that is wrong already can
// still get a label for another tool, or lose a finalizer. An API server writes both objects in the same way.
func (r Request) sameSpec(o, old object) bool {
	return r.Operation == admissionv1.Update && o.Metadata.Labels[authored.RoleLabel] == old.Metadata.Labels[authored.RoleLabel] && bytes.Equal(o.Spec, old.Spec)
}

// reachesMore reports whether machines get a MachineConfig that did not get it before: it has another role, or
// labels that another pool chooses.
func (k Known) reachesMore(o, old object) bool {
	now, before := o.Metadata.Labels, old.Metadata.Labels
	if role := now[authored.RoleLabel]; role != "" && role != before[authored.RoleLabel] {
		return true
	}
	if k.Pools == nil || maps.Equal(now, before) {
		return false
	}
	had := k.Pools(before)
	return slices.ContainsFunc(k.Pools(now), func(pool string) bool { return !slices.Contains(had, pool) })
}

// check checks an object that is no MachineConfig.
func (r Request) check(meta metav1.ObjectMeta) problem.Report {
	switch r.Kind {
	case "ContainerRuntimeConfig":
		_, report := containerruntime.Decode("", named(r.Object, meta))
		return report
	case "MachineConfigPool":
		return checkPool(r.Object)
	case "PoolRollout":
		return checkRollout(r.Object)
	}
	return problem.Report{problem.Errorf("$.kind", "the webhook does not know %s: its rules are wrong", problem.Quoted(r.Kind))}
}

// checkMachineConfig checks a MachineConfig alone, as a first boot would, and together with the others of its
// roles. weakens is why it weakens security, compared with the old one; it is only judged if nothing is wrong.
func checkMachineConfig(text []byte, old object, known Known) (report problem.Report, weakens []string) {
	rules := authored.Rules{KernelArguments: known.Policy}
	all, report := authored.Decode("", text, rules)
	if report.Failed() || len(all) != 1 {
		return report, nil
	}
	mc := *all[0]
	weakens = weakened(mc.Spec, old.Spec, rules.KernelArguments)
	report.Add(checkMerged(mc, known.Others, rules)...)
	mc.Spec.Config = judgedWhole(mc.Spec.Config)
	alone, err := authored.Merge([]*authored.MachineConfig{&mc}, authored.Images{})
	if err != nil {
		report.Fail("$", "%v", err)
		return report, weakens
	}
	alone.Name = mc.Name
	report.Add(authored.Check(alone, rules)...)
	return distinct(report), weakens
}

// judgedWhole returns the part of a config that is judged by its contents, or with the rest of a spec: kernel
// arguments, and files for CPU partitioning or pivot. Decode has judged the rest, which can be large, and a first boot
// finds it applied by Ignition.
func judgedWhole(c *ignition.Config) *ignition.Config {
	chosen := ignition.Empty()
	if c == nil {
		return &chosen
	}
	chosen.KernelArguments = c.KernelArguments
	for _, f := range c.Storage.Files {
		if machineconfig.IsJudged(f.Path) {
			chosen.Storage.Files = append(chosen.Storage.Files, f)
		}
	}
	return &chosen
}

// checkMerged returns the problems that the roles of a MachineConfig have only with it. Those that they have
// already must not keep anybody from mending another one.
func checkMerged(mc authored.MachineConfig, others []*authored.MachineConfig, rules authored.Rules) (added problem.Report) {
	config := ignition.Empty()
	if mc.Spec.Config != nil {
		config.KernelArguments = mc.Spec.Config.KernelArguments
	}
	mc.Spec.Config = &config
	without := slices.DeleteFunc(slices.Clone(others), func(o *authored.MachineConfig) bool { return o.Name == mc.Name })
	before, _ := authored.CheckRoles(others, rules)
	after, err := authored.CheckRoles(append(without, &mc), rules)
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
