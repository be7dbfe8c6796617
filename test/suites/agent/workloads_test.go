package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/test/worlds/hostsystemd"
)

// TestWorkloads: the agent advertises the workload types of its host, also while a change is carried out, and
// no longer those that a change has removed.
func TestWorkloads(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd and a control plane")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	w := newWorld(t)
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kubelet := func(status string) {
		t.Helper()
		if _, err := w.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	advertised := func(want string) {
		t.Helper()
		w.eventually("the node has "+want, func() bool {
			n, err := w.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			if err != nil {
				return false
			}
			got := ""
			for _, workload := range []string{"management", "other"} {
				if q, ok := n.Status.Allocatable[corev1.ResourceName(workload+".workload.openshift.io/cores")]; ok {
					got += workload + "=" + q.String() + " "
				}
			}
			return got == want
		})
	}
	file("workloads", `"management","other"`)
	kubelet(`{"capacity":{"cpu":"4"},"allocatable":{"cpu":"4"}}`)
	agent := w.start()
	advertised("management=4k other=4k ")
	w.done("a")

	file("hold", "")
	w.want("b")
	w.eventually("pivot applies b", func() bool { return w.has("applying") })
	kubelet(`{"capacity":{"management.workload.openshift.io/cores":"0"},"allocatable":{"management.workload.openshift.io/cores":"0"}}`)
	advertised("management=4k other=4k ")
	file("workloads", `"other"`)
	if err := os.Remove(filepath.Join(w.dir, "hold")); err != nil {
		t.Fatal(err)
	}
	w.done("b")
	advertised("other=4k ")
	if status := agent.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("stopped by SIGTERM, it ends with %d", status)
	}
}
