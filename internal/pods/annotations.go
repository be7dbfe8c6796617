package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
)

// Syntax is the syntax of resource annotations.
type Syntax int

const (
	// JSONSyntax is used by CRI-O since April 2021:
	// resources.workload.openshift.io/CONTAINER: {"cpushares":N,"cpulimit":M}
	JSONSyntax Syntax = iota
	// PlainSyntax is used by CRI-O 1.21.0, which has no limit:
	// resources.workload.openshift.io.cpushares/CONTAINER: "N"
	PlainSyntax
)

// warningAnnotation explains to users why a pod was not pinned.
const warningAnnotation = "workload.openshift.io/warning"

// oldestPrefix is the prefix of resource annotations before both syntaxes.
const oldestPrefix = "io.openshift.workload."

// isResource reports whether an annotation is a resource annotation in any syntax.
func isResource(key string) bool {
	return strings.HasPrefix(key, pinning.AnnotationPrefix+"/") || strings.HasPrefix(key, pinning.AnnotationPrefix+".") ||
		strings.HasPrefix(key, oldestPrefix)
}

// Shares returns the CPU shares for a request in millicores, computed like in the kubelet and the
// API server (MilliCPUToShares): 1024 for a whole CPU.
func Shares(milli int64) int64 { return clampShares(milli/1000*1024 + milli%1000*1024/1000) }

// SeedShares returns the CPU shares used in the enhancement's examples: the millicores themselves.
func SeedShares(milli int64) int64 { return clampShares(milli) }

// clampShares limits shares to the range that the kernel accepts.
func clampShares(n int64) int64 { return min(max(n, minShares), maxShares) }

const (
	minShares = 2
	maxShares = 262144
)

// annotation returns the key and value that give a container shares and a limit; 0 means no limit.
func (s Syntax) annotation(name string, shares, limit int64) (key, value string) {
	if s == PlainSyntax {
		return pinning.AnnotationPrefix + ".cpushares/" + name, strconv.FormatInt(shares, 10)
	}
	value = fmt.Sprintf(`{"cpushares":%d}`, shares)
	if limit > 0 {
		value = fmt.Sprintf(`{"cpushares":%d,"cpulimit":%d}`, shares, limit)
	}
	return pinning.AnnotationPrefix + "/" + name, value
}

// resources are the resources of a container in its annotation.
type resources struct {
	Shares int64 `json:"cpushares"`
	Limit  int64 `json:"cpulimit"` // in millicores; 0: none
}

// annotated returns the resources in a container's annotation from an earlier run; zeros if there are none.
func annotated(annotations map[string]string, name string) (r resources) {
	if json.Unmarshal([]byte(annotations[pinning.AnnotationPrefix+"/"+name]), &r) != nil {
		return resources{}
	}
	return resources{Shares: max(r.Shares, 0), Limit: max(r.Limit, 0)}
}

// setsCPUs reports whether an annotation chooses CPUs, which is reserved for the machine's
// configuration.
func setsCPUs(key, value string) bool {
	if strings.HasPrefix(key, pinning.AnnotationPrefix+".cpuset/") || strings.HasPrefix(key, oldestPrefix) && strings.Contains(key, ".cpuset/") {
		return true
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &object) != nil {
		return false
	}
	for member := range object {
		if strings.EqualFold(member, "cpuset") {
			return true
		}
	}
	return false
}

// Chosen returns the workload types that the annotations of a manifest choose; none if they choose none. The
// report has an error only if the manifest cannot be read as an object in YAML or JSON.
func Chosen(file string, manifest []byte) (types []string, report problem.Report) {
	report = document.Read(file, manifest, func(root document.Node) {
		if !root.Object() {
			return
		}
		for key := range root.Get("metadata").Get("annotations").Members() {
			if workload, ok := strings.CutPrefix(key, pinning.ActivationPrefix); ok {
				types = append(types, workload)
			}
		}
	})
	return types, report
}

// target returns the workload type that a pod's annotations choose; "" if none.
func target(annotations document.Node) string {
	var keys []string
	for key := range annotations.Members() {
		if strings.HasPrefix(key, pinning.ActivationPrefix) {
			keys = append(keys, key)
		}
	}
	switch len(keys) {
	case 0:
		return ""
	case 1:
	default:
		annotations.Fail("the pod can not have more than one workload annotations: %s", strings.Join(keys, ", "))
		return ""
	}
	workload := strings.TrimPrefix(keys[0], pinning.ActivationPrefix)
	if workload == "" {
		annotations.Fail("the workload annotation key should have format %s<workload_type>", pinning.ActivationPrefix)
	}
	return workload
}

// checkEffect checks the value of the annotation that chooses a workload. Only one effect is
// supported, which is also the default. The kubelet ignores it; the API server requires it.
func checkEffect(annotation document.Node) {
	var value map[string]string
	if err := json.Unmarshal([]byte(annotation.Text()), &value); err != nil {
		annotation.Fail("its value is not an object as %s: %v", preferred, err)
		return
	}
	if value == nil {
		annotation.Fail("its value is not an object as %s", preferred)
	}
	for _, member := range slices.Sorted(maps.Keys(value)) {
		if member != "effect" {
			annotation.Fail("unknown member %q", member)
		}
	}
	if effect, given := value["effect"]; given && effect != "PreferredDuringScheduling" {
		annotation.Fail(`only "PreferredDuringScheduling" effect is supported, not %q`, effect)
	}
}

// preferred is the value with the only supported effect.
const preferred = `{"effect": "PreferredDuringScheduling"}`
