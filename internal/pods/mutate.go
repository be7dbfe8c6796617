// Package pods changes the manifests of static pods of a workload of CPU partitioning, like OpenShift's kubelet and API
// server. CPU requests become requests of the workload's own resource, and an annotation gives CRI-O each container's
// CPU shares. So a kubelet without that patch can run the same pods. It does no I/O.
//
// Sources: the enhancement "management workload partitioning"; openshift/kubernetes,
// pkg/kubelet/managed and openshift-kube-apiserver/admission/autoscaling/managementcpusoverride.
// Where those two differ, this package follows the API server, which leaves a pod alone with a
// warning where the kubelet refuses to run it. Only a missing effect is handled like in the
// kubelet.
package pods

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

// Options are the options of Mutate.
type Options struct {
	Syntax Syntax
	Shares func(milli int64) int64 // default: Shares
	// Allowed maps namespaces to the value of AllowedAnnotation, the workload types that they
	// allow. nil: not checked, like in the kubelet.
	Allowed map[string]string
	// Off returns why a workload is not partitioned in this cluster at present; "" if it is. Then a pod is
	// left as it is, with that as its warning. nil: it is, like in the kubelet.
	Off func(workload string) string
	// Unrequested leaves the workload's resource out of requests and limits. A kubelet that does not
	// advertise the resource itself refuses a static pod that requests it, as long as its Node says 0.
	Unrequested bool
	// Zero leaves a request and a limit of 0 where the CPU was. An API server runs LimitRanger again behind a webhook,
	// which gives a container without them the defaults of its namespace.
	Zero bool
}

// Decision is the result for a manifest, with the reason.
type Decision struct {
	Pod        string              `json:"pod"`      // NAMESPACE/NAME
	Workload   string              `json:"workload"` // the workload that the pod chooses; "": none
	Changed    bool                `json:"changed"`
	Reason     string              `json:"reason"`
	Warning    string              `json:"warning,omitempty"` // as in the pod's annotation
	QoS        Quality             `json:"qos"`               // the same before and after
	Containers []ContainerDecision `json:"containers"`
	Removed    []RemovedAnnotation `json:"removed"`
}

// ContainerDecision is the result for a container.
type ContainerDecision struct {
	Name   string `json:"name"`
	Init   bool   `json:"init,omitempty"`
	Cores  int64  `json:"cores"`              // of the workload's resource, in millicores
	Shares int64  `json:"cpushares"`          // 0: no annotation
	Limit  int64  `json:"cpulimit,omitempty"` // in millicores
	Reason string `json:"reason"`
}

// RemovedAnnotation is an annotation that was removed from the pod.
type RemovedAnnotation struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// Mutate changes the manifest of one pod, in YAML or JSON. A manifest that needs no change is
// returned byte for byte. If it is not a pod, or one that the API server would refuse, the report
// has an error and no manifest is returned. file names the manifest in the report.
func Mutate(file string, manifest []byte, o Options) ([]byte, Decision, problem.Report) {
	if o.Shares == nil {
		o.Shares = Shares
	}
	p := &pod{}
	out, report := document.Edit(file, manifest, func(root document.Node) {
		if p.read(root); !root.Report.Failed() {
			p.mutate(o)
		}
	})
	p.decision.Changed = !report.Failed() && !bytes.Equal(out, manifest)
	return out, p.decision, report
}

// pod is a manifest that is being changed.
type pod struct {
	metadata, annotations document.Node
	texts                 map[string]string // the original annotations
	containers            []container
	namespace             string
	whole                 bool            // it has resources for all containers together
	written               map[string]bool // keys of the resource annotations that were written
	decision              Decision
}

// read reads a manifest. If the report has an error, the manifest must not be changed.
func (p *pod) read(root document.Node) {
	if !root.Object() {
		return
	}
	if kind, version := root.Get("kind").Text(), root.Get("apiVersion").Text(); kind != "Pod" || version != "v1" {
		root.Fail("it is %q of %q, not a Pod of v1", kind, version)
		return
	}
	spec := root.Get("spec")
	spec.Object()
	whole := spec.Get("resources")
	p.whole = len(readAmounts(whole.Get("requests")))+len(readAmounts(whole.Get("limits"))) > 0
	p.containers = readContainers(spec)
	p.metadata = root.Get("metadata")
	p.metadata.Object()
	p.annotations, p.written = p.metadata.Get("annotations"), map[string]bool{}
	p.texts = p.annotations.Texts()
	if p.namespace = p.metadata.Get("namespace").Text(); p.namespace == "" {
		p.namespace = "default"
	}
	p.decision = Decision{
		Pod: p.namespace + "/" + p.metadata.Get("name").Text(), QoS: classOf(p.containers),
		Containers: []ContainerDecision{}, Removed: []RemovedAnnotation{},
	}
}

func (p *pod) mutate(o Options) {
	workload := target(p.annotations)
	if p.annotations.Report.Failed() {
		return
	}
	p.decision.Workload = workload
	p.judgeAnnotations()
	defer p.strip()
	if workload == "" {
		p.decision.Reason = "it chooses no workload"
		p.checkUnpinned()
		return
	}
	if warning := p.obstacle(workload, o); warning != "" {
		p.leave(warning)
		p.checkUnpinned()
		return
	}
	p.decision.Reason = "it chooses the workload " + workload
	for i := range p.containers {
		p.pin(&p.containers[i], resourceOf(workload), o)
	}
}

// resourceOf returns the name of the resource that represents the CPUs of a workload.
func resourceOf(workload string) string { return workload + "." + resourceSuffix }

const resourceSuffix = "workload.openshift.io/cores"

// checkUnpinned refuses a pod without a workload that requests a workload's resource.
func (p *pod) checkUnpinned() {
	for _, c := range p.containers {
		for _, resource := range slices.Sorted(maps.Keys(c.requests)) {
			if strings.HasSuffix(resource, resourceSuffix) {
				c.at.Get("resources").Fail("the pod without workload annotations can not have containers with workload resources %q", resource)
			}
		}
	}
}

// judgeAnnotations records which existing resource annotations are removed. A container's resources
// are computed from its requests, and only the machine's configuration chooses the CPUs.
func (p *pod) judgeAnnotations() {
	for key, annotation := range p.annotations.Members() {
		switch {
		case !isResource(key):
		case setsCPUs(key, annotation.Text()):
			p.removed(key, "a pod may not choose its CPUs")
		case !p.ownAnnotation(key):
			p.removed(key, "the pod has no such container")
		case p.decision.Workload == "":
			p.removed(key, "a pod without workload annotation can not have resource annotation")
		}
	}
}

// annotate writes the resource annotation of a container.
func (p *pod) annotate(key, value string) {
	p.annotations.SetText(key, value)
	p.written[key] = true
}

// strip removes all resource annotations except those that were written.
func (p *pod) strip() {
	p.annotations.RemoveMembers(func(key string) bool { return isResource(key) && !p.written[key] })
}

func (p *pod) removed(key, reason string) {
	p.decision.Removed = append(p.decision.Removed, RemovedAnnotation{key, reason})
}

// ownAnnotation reports whether a resource annotation belongs to a container of the pod.
func (p *pod) ownAnnotation(key string) bool {
	_, name, _ := strings.Cut(key, "/")
	return slices.ContainsFunc(p.containers, func(c container) bool { return c.name == name })
}

// obstacle returns the reason to leave the pod unchanged; "" if there is none. It reports errors
// where the API server would refuse the pod.
func (p *pod) obstacle(workload string, o Options) string {
	if o.Allowed != nil {
		allowed, ok := o.Allowed[p.namespace]
		if !ok {
			return fmt.Sprintf("skipping pod CPUs requests modifications because the %s namespace is not annotated with %s to allow workload partitioning",
				p.namespace, AllowedAnnotation)
		}
		if !allows(allowed, workload) {
			p.metadata.Get("namespace").Fail("the pod namespace %q does not allow the workload type %s", p.namespace, workload)
		}
	}
	checkEffect(p.annotations.Get(pinning.ActivationPrefix + workload))
	if o.Off != nil {
		if why := o.Off(workload); why != "" {
			return "skipping pod CPUs requests modifications because " + why
		}
	}
	if p.whole {
		return "skipping pod CPUs requests modifications because it has resources of the pod as a whole"
	}
	if p.decision.QoS == Guaranteed {
		return "skipping pod CPUs requests modifications because it has guaranteed QoS class"
	}
	if after := classOf(withoutCPU(p.containers)); after != p.decision.QoS {
		return fmt.Sprintf("skipping pod CPUs requests modifications because it will change the pod QoS class from %s to %s", p.decision.QoS, after)
	}
	return ""
}

// allows reports whether the value of AllowedAnnotation lists a workload type. White space around a type does not count.
func allows(allowed, workload string) bool {
	return slices.ContainsFunc(strings.Split(allowed, ","), func(one string) bool { return strings.TrimSpace(one) == workload })
}

// withoutCPU returns the containers as they would be without CPU requests and limits.
func withoutCPU(all []container) []container {
	var changed []container
	for _, c := range all {
		requests, limits := amounts{}, amounts{}
		requests[resourceMemory], limits[resourceMemory] = c.requests[resourceMemory], c.limits[resourceMemory]
		changed = append(changed, container{requests: requests, limits: limits})
	}
	return changed
}

// leave excludes the pod from partitioning and annotates it with the warning.
func (p *pod) leave(warning string) {
	p.annotations.RemoveMembers(func(key string) bool { return strings.HasPrefix(key, pinning.ActivationPrefix) })
	p.annotations.SetText(warningAnnotation, warning)
	p.decision.Reason, p.decision.Warning = "it stays outside of partitioning", warning
}

// pin moves a container's CPU request to the workload's resource and annotates the pod with the
// container's shares and limit for CRI-O.
func (p *pod) pin(c *container, resource string, o Options) {
	d := ContainerDecision{Name: c.name, Init: c.init}
	request, asks := c.requests[resourceCPU]
	cores, moved := c.requests[resource]
	asks = asks && !(moved && request.Sign() == 0) // a zero of an earlier run
	had := annotated(p.texts, c.name)
	switch {
	case asks:
		limit := c.limits[resourceCPU]
		d.Cores, d.Limit, d.Reason = request.MilliValue(), limit.MilliValue(), "its CPU request is moved to "+resource
		if o.Unrequested {
			d.Reason = "its CPU request is in its annotation"
		}
		c.move(resource, d.Cores, o)
	case moved:
		limit := c.limits[resourceCPU] // of a LimitRange that gives the workload's resource, too
		d.Cores, d.Limit, d.Reason = cores.Value(), cmp.Or(limit.MilliValue(), had.Limit), "its CPU request was moved to "+resource+" before"
		if o.Unrequested || limit.Sign() > 0 {
			c.move(resource, d.Cores, o)
		}
	case o.Unrequested && had.Shares > 0:
		d.Shares, d.Limit, d.Reason = clampShares(had.Shares), had.Limit, "its CPU request was in its annotation before"
	case p.decision.QoS == BestEffort:
		d.Reason = "the pod is BestEffort"
	default:
		d.Reason = "it requests no CPU"
		p.decision.Containers = append(p.decision.Containers, d)
		return
	}
	if o.Syntax == PlainSyntax && d.Limit > 0 {
		d.Limit, d.Reason = 0, d.Reason+"; its limit is lost, this syntax knows none"
	}
	if d.Shares == 0 {
		d.Shares = o.Shares(d.Cores)
	}
	p.annotate(o.Syntax.annotation(c.name, d.Shares, d.Limit))
	p.decision.Containers = append(p.decision.Containers, d)
}

// move moves a container's CPU request to the resource, or out of the manifest. For an extended resource
// the limit must equal the request.
func (c *container) move(resource string, milli int64, o Options) {
	resources := c.at.Ensure("resources")
	for _, list := range []string{"requests", "limits"} {
		amounts := resources.Get(list)
		if !o.Unrequested {
			amounts = resources.Ensure(list)
		}
		amounts.RemoveMembers(func(key string) bool { return key == resourceCPU && !o.Zero || o.Unrequested && key == resource })
		if o.Zero {
			amounts.SetText(resourceCPU, "0")
		}
		if !o.Unrequested {
			amounts.SetNumber(resource, milli)
		}
	}
}
