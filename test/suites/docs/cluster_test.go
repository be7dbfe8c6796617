package docs_test

import (
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/tools/authority"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/controlplane"
)

// onClusters are the documents with commands of a person with a cluster, which has the node n1: kubectl is
// the real one, at a real API server. The directory has deploy/, as a checkout.
var onClusters = map[string]func(*cluster){
	"docs/cluster.md": func(c *cluster) {
		c.notes["the operator's schemas stay"] = c.schemasStay
		c.notes["MachineConfigs of a pool"] = c.poolConfigs
		c.notes["an agent has left the node"] = c.left
		c.notes["nothing of the agent is left"] = c.recovered
	},
	"docs/cluster-parts.md": func(c *cluster) {
		c.notes["objects of users"] = c.writtenByUsers
		c.notes["objects of users are as before"] = c.usersObjects
	},
	"docs/cluster-takeover.md": func(c *cluster) {
		c.notes["the agents are pods"] = func() { c.mustRun("kubectl apply -k deploy/base && kubectl apply -k deploy/pod") }
	},
	"docs/cluster-view.md": func(c *cluster) {
		c.notes["certificates for the metrics"] = c.certificates
	},
}

// cluster is a stage with a cluster.
type cluster struct {
	*stage
	plane *controlplane.ControlPlane
}

func newCluster(s *stage, bin string) *cluster {
	s.t.Helper()
	need.Program(s.t, "jq")
	c := &cluster{s, controlplane.Start(s.t)}
	s.plain(bin)
	programs := s.t.TempDir()
	c.must(os.Symlink(controlplane.NeedProgram(s.t, controlplane.FormKubectl), filepath.Join(programs, "kubectl")))
	config := filepath.Join(programs, "kubeconfig")
	c.must(os.WriteFile(config, c.plane.Kubeconfig(c.plane.Admin()), 0o600))
	c.must(os.CopyFS(filepath.Join(s.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))))
	plain := s.sh
	s.sh = func(command string) (string, int, error) {
		return plain("export KUBECONFIG=" + config + " HOME=" + programs + " PATH=" + programs + ":$PATH\n" + command)
	}
	c.plane.Apply(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1"}})
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// schemasStay checks that what is applied beside the machine-config operator has no schema of the operator's, and lets its
// controllers drain.
func (c *cluster) schemasStay() {
	c.t.Helper()
	text := c.mustRun("kubectl kustomize deploy/pod-beside-operator")
	for what, is := range map[string]bool{
		"CustomResourceDefinition": false, "- --drain=controller\n": true, "name: system:openshift:scc:privileged\n": true,
	} {
		if strings.Contains(text, what) != is {
			c.t.Errorf("deploy/pod-beside-operator has %q: %v", what, !is)
		}
	}
}

// writtenByUsers writes objects of users, before there is a webhook without anybody behind it.
func (c *cluster) writtenByUsers() {
	c.t.Helper()
	c.machineConfigs()
	c.must(os.Rename(filepath.Join(c.dir, "conf"), filepath.Join(c.dir, "machineconfigs")))
	c.mustRun("kubectl apply -k deploy/base && kubectl wait --for=condition=Established crd --all && kubectl apply --server-side -f machineconfigs")
	c.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": map[string]any{"name": "worker"}, "spec": map[string]any{}})
	c.plane.Apply(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
		"metadata": map[string]any{"name": "limits", "finalizers": []string{api.GeneratedFinalizer}}, "spec": map[string]any{"containerRuntimeConfig": map[string]any{"pidsLimit": 2048}}})
}

// usersObjects checks that what users have written, and what binds the agents, is still there.
func (c *cluster) usersObjects() {
	c.t.Helper()
	c.mustRun("kubectl get mc -o name | grep . && kubectl get mcp worker && kubectl get ctrcfg limits -o jsonpath='{.metadata.deletionTimestamp}x' | grep '^x$' && kubectl get validatingadmissionpolicybinding pivot-agent-state")
}

// poolConfigs creates the directory conf. Its MachineConfigs have the name in the document when they are merged.
func (c *cluster) poolConfigs() {
	c.t.Helper()
	c.machineConfigs()
	c.names["rendered-worker-5f1d0c3b9a7e4268b0c1d2e3f4a59687"] = strings.TrimSpace(c.mustRun("pivotctl config render --role worker -o json conf 2>/dev/null | jq -r .metadata.name"))
}

// left makes the node one that an agent has cordoned, and on which its MachineConfig has failed.
func (c *cluster) left() {
	c.t.Helper()
	c.mustRun("kubectl annotate node n1 " + api.CordonedFor + "=rendered-worker-5f1d0c3b9a7e4268b0c1d2e3f4a59687 " + api.FailedConfig + "=rendered-worker-5f1d0c3b9a7e4268b0c1d2e3f4a59687")
}

// recovered checks that an administrator has given the node back, and has a MachineConfig that pivot accepts.
func (c *cluster) recovered() {
	c.t.Helper()
	n, err := c.plane.Client(c.plane.Admin()).CoreV1().Nodes().Get(c.t.Context(), "n1", metav1.GetOptions{})
	c.must(err)
	if note := n.Annotations; n.Spec.Unschedulable || note[api.CordonedFor] != "" || note[api.FailedConfig] != "" || note[api.DesiredConfig] != c.names["rendered-worker-5f1d0c3b9a7e4268b0c1d2e3f4a59687"] {
		c.t.Errorf("the node is left as %+v", n)
	}
	c.mustRun("pivotctl config validate mc.json")
}

// certificates writes files with the names of the document.
func (c *cluster) certificates() {
	c.t.Helper()
	authority.New(c.t, "metrics").Write(c.dir, "pivot-agent")
}

// mustRun runs a command that is not in the document. It must succeed.
func (c *cluster) mustRun(command string) string {
	c.t.Helper()
	out, status := c.run(command)
	if status != 0 {
		c.t.Fatalf("%s: exit status %d\n%s", command, status, out)
	}
	return out
}
