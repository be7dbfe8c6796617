package admission

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
)

// PlatformLabel marks a MachineConfig as one of the platform's own, which users may not change. Its value does
// not matter.
const PlatformLabel = api.Prefix + "/platform"

// isGenerated reports whether a name is that of a MachineConfig that is made from another object, such as
// 99-worker-generated-containerruntime-1.
func isGenerated(name string) bool {
	number, rest, ok := strings.Cut(name, "-")
	return ok && len(number) == 2 && strings.Trim(number, "0123456789") == "" && strings.Contains(rest, "-generated-")
}

// ofPlatform returns why a MachineConfig is one of the platform's own; "" if it is a user's.
func ofPlatform(m metav1.ObjectMeta) string {
	name := m.Name + m.GenerateName
	switch {
	case isRendered(name):
		return "it is rendered from others"
	case api.IsResult(name):
		return "its name is one that only the renderer gives"
	case isGenerated(name):
		return "it is generated from another object"
	}
	if _, ok := m.Annotations[machineconfig.GeneratedBy]; ok {
		return "it has the annotation " + machineconfig.GeneratedBy
	}
	if _, ok := m.Labels[PlatformLabel]; ok {
		return "it has the label " + PlatformLabel
	}
	return ""
}

// collector is who deletes objects without their owners.
const collector = "system:serviceaccount:kube-system:generic-garbage-collector"
