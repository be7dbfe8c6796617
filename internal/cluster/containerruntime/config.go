// Package containerruntime converts ContainerRuntimeConfigs, of files and of a cluster: the CRI-O settings that a cluster
// administrator may change, to MachineConfigs. It does no I/O.
//
// Sources: the proposal "ContainerRuntimeConfig"; the type of that name in the OpenShift API; the
// machine-config operator's pkg/controller/container-runtime-config. Unlike there, a failed merge
// is an error, not a success without effect.
package containerruntime

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// suffixAnnotation holds the number in the name of the MachineConfig that is generated from a
// ContainerRuntimeConfig; empty for the first one.
const suffixAnnotation = "machineconfiguration.openshift.io/mc-name-suffix"

// Config is a ContainerRuntimeConfig, or a KubeletConfig with the one setting of kubelet that limits what a
// ContainerRuntimeConfig sets.
type Config struct {
	Name     string
	kind     string
	Selector Selector // of pools
	Settings Settings
	suffix   *string // nil: not numbered yet
}

// Settings are the settings of a ContainerRuntimeConfig. nil or "" means not set.
type Settings struct {
	PidsLimit      *int64             // maximum number of processes in a container; 0: unlimited
	LogLevel       string             // log level of CRI-O
	LogSizeMax     *document.Quantity // maximum size of a container's log, in bytes; 0: not set; negative: unlimited
	OverlaySize    *document.Quantity // maximum size of a container's file system, in bytes; 0: not set
	DefaultRuntime string             // crun or runc
	PodPidsLimit   *int64             // kubelet's maximum number of processes in a pod; 0, -1: unlimited
}

// Pool is a MachineConfigPool. Its name is the role of its machines.
type Pool struct {
	Name   string
	Labels map[string]string
}

// Objects are the objects read from files.
type Objects struct {
	Configs []Config
	Pools   []Pool
}

// Decode reads the ContainerRuntimeConfigs and MachineConfigPools of a file in YAML or JSON: one or
// several documents, or lists. The report has all errors, and warnings about settings that a
// cluster accepts but does not apply as written.
func Decode(file string, data []byte) (Objects, problem.Report) {
	var all Objects
	report := document.Read(file, data, all.Decode)
	if len(all.Configs)+len(all.Pools) == 0 && len(report) > 0 && !report.Failed() { // what it holds was left out
		report.Fail("$", "it holds no %s", Kind)
	}
	return all, report.In(file)
}

// Decode adds the objects of one document. Its report has the problems.
func (all *Objects) Decode(root document.Node) {
	for _, n := range root.Objects() {
		all.decode(n)
	}
}

func (all *Objects) decode(n document.Node) {
	if !n.Object() {
		return
	}
	kind := n.Get("kind").Text()
	if kind != Kind && kind != kindKubelet && kind != kindPool && machineconfig.LeftOut(n, Kind) {
		return
	}
	if kind != Kind && kind != kindKubelet && kind != kindPool {
		n.Get("kind").Fail("it is %s, not a %s, a %s or a %s", problem.Quoted(kind), Kind, kindKubelet, kindPool)
		return
	}
	n.Known("a "+kind, "apiVersion", "kind", "metadata", "spec", "status")
	if version := n.Get("apiVersion"); version.IsNull() {
		version.Fail("it is missing")
	} else {
		version.MustBe(machineconfig.APIVersion)
	}
	metadata := n.Get("metadata")
	name := metadata.Get("name").Text()
	if metadata.Object(); name == "" {
		metadata.Get("name").Fail("it is missing")
	}
	if kind == kindPool {
		checkSelects(n.Get("spec").Get("machineConfigSelector"), name)
		all.Pools = append(all.Pools, Pool{name, metadata.Get("labels").Texts()})
		return
	}
	all.Configs = append(all.Configs, decodeConfig(Config{Name: name, kind: kind}, metadata, n.Get("spec")))
}

// checkSelects warns about a pool that does not select the MachineConfigs that are made for it: they have its name as role,
// and nothing would get them. A pool without a selector is not complete, and is not judged.
func checkSelects(n document.Node, pool string) {
	if !n.IsNull() && !DecodeSelector(n).Matches(map[string]string{authored.RoleLabel: pool}) {
		n.Warn("it does not select what is made for the pool, with the label %s: %s, so no machine would get it", authored.RoleLabel, problem.Quoted(pool))
	}
}

// The supported kinds.
const (
	Kind        = "ContainerRuntimeConfig"
	kindKubelet = "KubeletConfig"
	kindPool    = "MachineConfigPool"
)

func decodeConfig(c Config, metadata, spec document.Node) Config {
	if suffix, ok := metadata.Get("annotations").Texts()[suffixAnnotation]; ok {
		c.suffix = &suffix
	}
	member, names := "containerRuntimeConfig", []string{"pidsLimit", "logLevel", "logSizeMax", "overlaySize", "defaultRuntime"}
	if c.kind == kindKubelet {
		member, names = "kubeletConfig", []string{"podPidsLimit"}
	}
	spec.Known("a "+c.kind, "machineConfigPoolSelector", member)
	c.Selector = DecodeSelector(spec.Get("machineConfigPoolSelector"))
	settings := spec.Get(member)
	if settings.IsNull() {
		settings.Fail("it is missing")
		return c
	}
	settings.Known("a "+c.kind+" that pivot renders", names...)
	c.Settings = Settings{
		PidsLimit:      integer(settings.Get("pidsLimit")),
		LogLevel:       settings.Get("logLevel").Text(),
		LogSizeMax:     amount(settings.Get("logSizeMax")),
		OverlaySize:    amount(settings.Get("overlaySize")),
		DefaultRuntime: settings.Get("defaultRuntime").Text(),
		PodPidsLimit:   integer(settings.Get("podPidsLimit")),
	}
	c.Settings.judge(settings)
	return c
}

// integer returns an integer; nil if the node is null or invalid.
func integer(n document.Node) *int64 {
	if n.IsNull() {
		return nil
	}
	number, _ := n.Number()
	i, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		n.Fail("it is not a whole number")
		return nil
	}
	return &i
}

// amount returns a quantity; nil if the node is null or invalid.
func amount(n document.Node) *document.Quantity {
	if q, ok := n.Quantity(); ok {
		return &q
	}
	return nil
}

// DecodeSelector reads a label selector, and reports what is wrong with it.
func DecodeSelector(n document.Node) Selector {
	n.Known("a label selector", "matchLabels", "matchExpressions")
	s := Selector{metav1.LabelSelector{MatchLabels: n.Get("matchLabels").Texts()}}
	for _, item := range n.Get("matchExpressions").Items() {
		item.Known("a label selector", "key", "operator", "values")
		r := metav1.LabelSelectorRequirement{Key: item.Get("key").Text(), Operator: metav1.LabelSelectorOperator(item.Get("operator").Text())}
		for _, value := range item.Get("values").Items() {
			r.Values = append(r.Values, value.Text())
		}
		if why := wrong(r); why != "" {
			item.Fail("%s", why)
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

// wrong returns what is wrong with an expression; "" if it is valid.
func wrong(r metav1.LabelSelectorRequirement) string {
	if r.Key == "" {
		return "it has no key"
	}
	switch r.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if len(r.Values) == 0 {
			return fmt.Sprintf("the operator %s wants values", r.Operator)
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return fmt.Sprintf("the operator %s takes no values", r.Operator)
		}
	default:
		return "the operator " + problem.Quoted(string(r.Operator)) + " is none of In, NotIn, Exists, DoesNotExist"
	}
	return ""
}
