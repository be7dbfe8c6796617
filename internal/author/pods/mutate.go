// Package pods changes the manifests of static pods that belong to a workload of
// CPU partitioning, as OpenShift's kubelet and API server do: CPU requests become
// requests of the workload's own resource, and CRI-O gets each container's CPU
// shares by an annotation. So a kubelet without that patch runs the same pods.
// It does no I/O.
//
// Sources: the enhancement "management workload partitioning"; openshift/kubernetes,
// pkg/kubelet/managed and openshift-kube-apiserver/admission/autoscaling/managementcpusoverride.
// Where those two differ, the API server's rule holds: it leaves a pod alone with
// a warning where kubelet refuses to run it. Only a missing effect is taken as
// kubelet takes it.
package pods

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

// Options say how manifests are changed.
type Options struct {
	Syntax Syntax
	Shares func(milli int64) int64 // Shares if nil
	// Allowed are the workload types that each namespace allows, in the form of
	// its annotation; nil if that is not to be checked: kubelet does not.
	Allowed map[string]string
}

// Decision is what became of a manifest, and why.
type Decision struct {
	Pod        string              `json:"pod"`      // NAMESPACE/NAME
	Workload   string              `json:"workload"` // that it chooses; "" for none
	Changed    bool                `json:"changed"`
	Reason     string              `json:"reason"`
	Warning    string              `json:"warning,omitempty"` // as in the pod's annotation
	QoS        Quality             `json:"qos"`               // before and after
	Containers []ContainerDecision `json:"containers"`
	Removed    []RemovedAnnotation `json:"removed"`
}

// ContainerDecision is what became of a container.
type ContainerDecision struct {
	Name   string `json:"name"`
	Init   bool   `json:"init,omitempty"`
	Cores  int64  `json:"cores"`              // of the workload's resource, in thousandths of a CPU
	Shares int64  `json:"cpushares"`          // 0: no annotation
	Limit  int64  `json:"cpulimit,omitempty"` // in thousandths of a CPU
	Reason string `json:"reason"`
}

// RemovedAnnotation is one that the pod came with and does not keep.
type RemovedAnnotation struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// Mutate changes the manifest of one pod, in YAML or JSON. A manifest that needs
// no change comes back byte for byte. The report has an error, and there is no manifest,
// if the API server would refuse such a pod, or if it is none. File is its name there.
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
	texts                 map[string]string // the annotations, as they were
	containers            []container
	namespace             string
	written               map[string]bool // resource annotations
	decision              Decision
}

// read reads a manifest, of which nothing is changed if the report fails.
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
	if resources := spec.Get("resources"); !resources.IsNull() {
		resources.Fail("not implemented: resources of the pod as a whole")
	}
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

// resourceOf is the resource that stands for the CPUs of a workload.
func resourceOf(workload string) string { return workload + "." + resourceSuffix }

const resourceSuffix = "workload.openshift.io/cores"

// checkUnpinned refuses a pod of no workload that requests the resource of one.
func (p *pod) checkUnpinned() {
	for _, c := range p.containers {
		for _, resource := range slices.Sorted(maps.Keys(c.requests)) {
			if strings.HasSuffix(resource, resourceSuffix) {
				c.at.Get("resources").Fail("the pod without workload annotations can not have containers with workload resources %q", resource)
			}
		}
	}
}

// judgeAnnotations notes which resource annotations the pod came with and may
// not keep: what a container gets is worked out from its requests, and which
// CPUs is nobody's choice but the machine's.
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

// strip takes all resource annotations away but those that were written.
func (p *pod) strip() {
	p.annotations.RemoveMembers(func(key string) bool { return isResource(key) && !p.written[key] })
}

func (p *pod) removed(key, reason string) {
	p.decision.Removed = append(p.decision.Removed, RemovedAnnotation{key, reason})
}

// ownAnnotation reports whether a resource annotation is of a container of the pod.
func (p *pod) ownAnnotation(key string) bool {
	_, name, _ := strings.Cut(key, "/")
	return slices.ContainsFunc(p.containers, func(c container) bool { return c.name == name })
}

// obstacle is why the pod is left as it is, or "". What it reports are errors that the
// API server would give.
func (p *pod) obstacle(workload string, o Options) string {
	if o.Allowed != nil {
		allowed, ok := o.Allowed[p.namespace]
		if !ok {
			return fmt.Sprintf("skipping pod CPUs requests modifications because the %s namespace is not annotated with %s to allow workload partitioning",
				p.namespace, AllowedAnnotation)
		}
		if !slices.Contains(strings.Split(allowed, ","), workload) {
			p.metadata.Get("namespace").Fail("the pod namespace %q does not allow the workload type %s", p.namespace, workload)
		}
	}
	checkEffect(p.annotations.Get(pinning.ActivationPrefix + workload))
	if p.decision.QoS == Guaranteed {
		return "skipping pod CPUs requests modifications because it has guaranteed QoS class"
	}
	if after := classOf(withoutCPU(p.containers)); after != p.decision.QoS {
		return fmt.Sprintf("skipping pod CPUs requests modifications because it will change the pod QoS class from %s to %s", p.decision.QoS, after)
	}
	return ""
}

// withoutCPU is the containers as they would be.
func withoutCPU(all []container) []container {
	var changed []container
	for _, c := range all {
		requests, limits := amounts{}, amounts{}
		requests[resourceMemory], limits[resourceMemory] = c.requests[resourceMemory], c.limits[resourceMemory]
		changed = append(changed, container{requests: requests, limits: limits})
	}
	return changed
}

// leave takes the pod out of partitioning and says so in it.
func (p *pod) leave(warning string) {
	p.annotations.RemoveMembers(func(key string) bool { return strings.HasPrefix(key, pinning.ActivationPrefix) })
	p.annotations.SetText(warningAnnotation, warning)
	p.decision.Reason, p.decision.Warning = "it stays outside of partitioning", warning
}

// pin moves a container's CPU request to the workload's resource and gives CRI-O
// its shares and limit.
func (p *pod) pin(c *container, resource string, o Options) {
	d := ContainerDecision{Name: c.name, Init: c.init}
	request, asks := c.requests[resourceCPU]
	cores, moved := c.requests[resource]
	switch {
	case asks:
		limit := c.limits[resourceCPU]
		d.Cores, d.Limit, d.Reason = milli(request), milli(limit), "its CPU request is moved to "+resource
		c.move(resource, d.Cores)
	case moved:
		d.Cores, d.Limit, d.Reason = cores.Value(), limitOf(p.texts, c.name), "its CPU request was moved to "+resource+" before"
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
	d.Shares = o.Shares(d.Cores)
	p.annotate(o.Syntax.annotation(c.name, d.Shares, d.Limit))
	p.decision.Containers = append(p.decision.Containers, d)
}

// move rewrites a container's requests and limits: the resource is one of those
// whose limit must be what is requested.
func (c *container) move(resource string, milli int64) {
	resources := c.at.Ensure("resources")
	for _, list := range []string{"requests", "limits"} {
		amounts := resources.Ensure(list)
		amounts.RemoveMembers(func(key string) bool { return key == resourceCPU })
		amounts.SetNumber(resource, milli)
	}
}
