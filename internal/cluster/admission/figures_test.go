package admission_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/admission"
	"machine-pivot/test/worlds/controlplane"
)

// TestFigures measures how long the webhooks take, as an API server sees it: requests over TLS, a connection
// that stays open, beside 5,000 nodes and 50 MachineConfigs in the caches. The names of the requests stand in
// docs/cluster-admission.md.
func TestFigures(t *testing.T) {
	const nodes = 5000
	w := newWorld(t)
	var all errgroup.Group
	all.SetLimit(20)
	for i := range nodes {
		all.Go(func() error {
			return w.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i)}})
		})
	}
	for i := range 50 {
		all.Go(func() error { return w.admin.Create(t.Context(), machineConfig(fmt.Sprintf("%02d-other", i), "quiet")) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	w.webhooks(address)
	w.replica(address)
	caller := &caller{T: t, address: address}
	controlplane.Eventually(t, "the webhooks answer", func(context.Context) bool {
		return strings.Contains(caller.ask("/pods", review("Pod", "apps", []byte(pod))), "these nodes do not report")
	})
	mix := []struct {
		name, path string
		body       []byte
		limit      time.Duration // of the median: generous, for a machine that is busy
	}{
		{"a pod of a workload that is off", "/pods", review("Pod", "apps", []byte(pod)), 20 * time.Millisecond},
		{"a pod of a workload", "/pods", review("Pod", "apps", []byte(pod)), 20 * time.Millisecond},
		{"a pod without a workload", "/pods", review("Pod", "apps", []byte(strings.Replace(pod, "target.workload.openshift.io/management", "a", 1))), 20 * time.Millisecond},
		{"a MachineConfig, only arguments", "/validate", review("MachineConfig", "", []byte(mc("a", `{"kernelArguments":["quiet"]}`))), 50 * time.Millisecond},
		{"a MachineConfig of 10 kB", "/validate", review("MachineConfig", "", []byte(mc("a", usual(10_000)))), 50 * time.Millisecond},
		{"a MachineConfig of 50 kB", "/validate", review("MachineConfig", "", []byte(mc("a", usual(50_000)))), 100 * time.Millisecond},
		{"a MachineConfig of 1 MB", "/validate", review("MachineConfig", "", []byte(mc("a", usual(1_000_000)))), 2 * time.Second},
		{"a MachineConfigPool", "/validate", review("MachineConfigPool", "", []byte(object("MachineConfigPool", "worker", "", `{"nodeSelector":{"matchLabels":{"a":"b"}}}`))), 20 * time.Millisecond},
		{"a ContainerRuntimeConfig", "/validate", review("ContainerRuntimeConfig", "", []byte(object("ContainerRuntimeConfig", "a", "", `{"containerRuntimeConfig":{"pidsLimit":500}}`))), 20 * time.Millisecond},
	}
	for i, c := range mix {
		if i == 1 {
			w.remember("management")
			controlplane.Eventually(t, "the workload is on", func(context.Context) bool { return !strings.Contains(caller.ask("/pods", c.body), "do not report") })
		}
		before := processorTime(t)
		took := caller.times(c.path, c.body)
		each := (processorTime(t) - before) / time.Duration(len(took))
		t.Logf("%-34s p50 %8v p99 %8v slowest %8v of %d, processor time of both sides %v", c.name, at(took, 50), at(took, 99), at(took, 100), len(took), each.Round(10*time.Microsecond))
		if at(took, 50) > c.limit {
			t.Errorf("%s: the median is %v, want at most %v", c.name, at(took, 50), c.limit)
		}
	}
}

// remember has a workload be on, though most nodes do not report it.
func (w world) remember(workload string) {
	w.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "pivot-fleet", Name: admission.PartitionedName}, Data: map[string]string{workload: "2026-01-01T00:00:00Z"}}
	if err := w.admin.Create(w.Context(), m); err != nil {
		w.Fatal(err)
	}
}

// caller asks the webhooks as an API server does.
type caller struct {
	*testing.T
	address string
	client  http.Client
}

// ask returns the answer to a request; "" as long as there is none.
func (c *caller) ask(path string, body []byte) string {
	if c.client.Transport == nil {
		c.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the certificate is measured, not judged
	}
	response, err := c.client.Post("https://"+c.address+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// times returns how long requests took, sorted.
func (c *caller) times(path string, body []byte) (took []time.Duration) {
	c.Helper()
	for begin := time.Now(); len(took) < 2000 && (len(took) < 100 || time.Since(begin) < 5*time.Second); {
		asked := time.Now()
		if answer := c.ask(path, body); !strings.Contains(answer, `"allowed":true`) {
			c.Fatalf("the answer is %.500q", answer)
		}
		took = append(took, time.Since(asked))
	}
	slices.Sort(took)
	return took
}

// processorTime returns what this process has used: the webhooks, and their caller.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// at returns a percentile.
func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Round(10 * time.Microsecond)
}

// review returns the question of an API server about an object that is created.
func review(kind, namespace string, object []byte) []byte {
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("a"), Kind: metav1.GroupVersionKind{Kind: kind}, Namespace: namespace, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		panic(err) // it is made of plain values
	}
	return body
}

// usual returns the spec of a MachineConfig of about size bytes, like those of the machine-config operator:
// scripts and settings, percent-encoded, and units.
func usual(size int) string {
	script := url.PathEscape("#!/bin/bash\nset -eu\n" + strings.Repeat("if [ -e \"/etc/example\" ]; then\n  echo \"it's there\"\nfi\n", 20))
	unit, err := json.Marshal("[Unit]\nDescription=Example\n" + strings.Repeat("After=network-online.target\n", 20) + "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
	if err != nil {
		panic(err) // it is a string
	}
	var files, units []string
	for i := 0; size > 0; i++ {
		files = append(files, fmt.Sprintf(`{"path":"/etc/example/%d","mode":420,"overwrite":true,"contents":{"source":"data:,%s"}}`, i, script))
		units = append(units, fmt.Sprintf(`{"name":"example-%d.service","enabled":true,"contents":%s}`, i, unit))
		size -= len(files[i]) + len(units[i])
	}
	return `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[` + strings.Join(files, ",") + `]},"systemd":{"units":[` + strings.Join(units, ",") + `]}}}`
}

// pod is a pod of a workload, as an API server gives it to a webhook.
const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"a-","namespace":"apps","annotations":{"target.workload.openshift.io/management":"{\"effect\":\"PreferredDuringScheduling\"}"}},` +
	`"spec":{"volumes":[{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}],"defaultMode":420}}],` +
	`"containers":[{"name":"a","image":"registry.example/a:1","command":["/bin/a","--verbose"],"env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"400m","memory":"1Gi"}},` +
	`"volumeMounts":[{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","securityContext":{},"schedulerName":"default-scheduler",` +
	`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{}}`
