package kube_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"machine-pivot/test/worlds/controlplane"
)

// TestMetricsManifest: the API server accepts the DaemonSet of deploy/pod-metrics, which has the flags, the port and
// the files with which Prometheus reads the metrics, and all that deploy/pod has.
func TestMetricsManifest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	plane := controlplane.Start(t)
	client := plane.Client(plane.Admin())
	plane.Deploy("../../../deploy/pod-metrics")
	text, err := os.ReadFile("../../../deploy/pod-metrics/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.AppsV1().DaemonSets("pivot-agent").Get(t.Context(), "pivot-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := client.AppsV1().DaemonSets("pivot-agent").Patch(t.Context(), "pivot-agent", types.JSONPatchType, patch, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	old, pod := before.Spec.Template.Spec, after.Spec.Template.Spec
	agent := pod.Containers[0]
	if kept := old.Containers[0].Args; !slices.Equal(agent.Args[:len(kept)], kept) || len(agent.VolumeMounts) != len(old.Containers[0].VolumeMounts)+1 {
		t.Errorf("it loses what deploy/pod has: %+v", agent)
	}
	if len(agent.Ports) != 1 || agent.Ports[0].ContainerPort != 8796 {
		t.Errorf("ports %+v", agent.Ports)
	}
	mount, volume := agent.VolumeMounts[len(agent.VolumeMounts)-1], pod.Volumes[len(pod.Volumes)-1]
	if mount.Name != volume.Name || volume.Secret == nil || volume.Secret.SecretName != "pivot-agent-metrics" {
		t.Errorf("%+v of %+v", mount, volume)
	}
	for _, flag := range []string{"--metrics-cert=/metrics/tls.crt", "--metrics-key=/metrics/tls.key", "--metrics-client-ca=/metrics/ca.crt", "--listen-metrics=:8796"} {
		if !slices.Contains(agent.Args, flag) {
			t.Errorf("no %s: %s", flag, strings.Join(agent.Args, " "))
		}
	}
}
