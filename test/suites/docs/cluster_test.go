package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/test/tools/authority"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/fleet"
	"machine-pivot/test/worlds/registry"
)

// onClusters are the documents with commands of a person with a cluster, which has the node n1: kubectl is
// the real one, at a real API server. The directory has deploy/, as a checkout.
var onClusters = map[string]func(*cluster){
	"docs/cluster.md": func(c *cluster) {
		c.notes["install.yaml is made"] = c.installYAML
		c.notes["controllers and agents run"] = c.rollsOut
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
	plane    *controlplane.ControlPlane
	registry *registry.Registry // of the quick start
	digest   string             // of its image
}

func newCluster(s *stage, bin string) *cluster {
	s.t.Helper()
	need.Program(s.t, "jq")
	c := &cluster{stage: s, plane: controlplane.Start(s.t)}
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

// installYAML makes bin/install.yaml, and has the image of the document in a registry.
func (c *cluster) installYAML() {
	c.t.Helper()
	digest := "@sha256:" + strings.Repeat("a", 64)
	installyaml := exec.Command("go", "run", "./test/tools/installyaml", "-agent", "registry.example/pivot-agent"+digest, "-fleet", "registry.example/pivot-fleet"+digest, "-out", filepath.Join(c.dir, "bin"))
	installyaml.Dir = root
	out, err := installyaml.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	c.registry, err = registry.Start(registry.Options{Anonymous: true})
	c.must(err)
	c.t.Cleanup(func() { _ = c.registry.Close() })
	image, err := random.Image(64, 1)
	c.must(err)
	file, err := image.ConfigFile()
	c.must(err)
	file.OS, file.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, file)
	c.must(err)
	c.digest, err = c.registry.Push(c.t.Context(), "os", "stable", image)
	c.must(err)
	c.names["quay.example/os:stable"] = c.registry.Host() + "/os:stable"
}

// rollsOut runs the controllers, with the rights of install.yaml, and stands in for the agents. The node gets the image.
func (c *cluster) rollsOut() {
	c.t.Helper()
	program := filepath.Join(c.t.TempDir(), "pivot-fleet")
	script.Build(c.t, program, "machine-pivot/cmd/pivot-fleet")
	f := fleet.Deployed(c.t, c.plane, program)
	ca := filepath.Join(c.t.TempDir(), "ca.crt")
	c.must(os.WriteFile(ca, c.registry.CA(), 0o600))
	f.Env = []string{"SSL_CERT_FILE=" + ca}
	replica := f.Start()
	c.mustRun("kubectl patch node n1 --subresource=status --type=merge -p '{\"status\":{\"nodeInfo\":{\"architecture\":\"amd64\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}'")
	nodes := c.plane.Client(c.plane.Admin()).CoreV1().Nodes()
	controlplane.Eventually(c.t, "the node has the image", func(ctx context.Context) bool {
		n, err := nodes.Get(ctx, "n1", metav1.GetOptions{})
		if err != nil || n.Annotations[api.DesiredConfig] == "" {
			return false
		}
		desired := n.Annotations[api.DesiredConfig]
		if n.Annotations[api.CurrentConfig] == desired {
			text, _ := c.run("kubectl get mc " + desired + " -o jsonpath={.spec.osImageURL}")
			return strings.HasSuffix(text, "/os@"+c.digest)
		}
		body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q}}}`, api.CurrentConfig, desired, api.StateOfNode, api.StateDone)
		_, _ = nodes.Patch(ctx, "n1", types.MergePatchType, []byte(body), metav1.PatchOptions{}) // it is tried again
		return false
	})
	c.notes["nothing of the rollout is left"] = func() {
		c.mustRun("kubectl delete prl --all") // its finalizer is the controllers'
		f.Stop(replica)
		c.mustRun("kubectl delete mcp,mc --all && kubectl annotate node n1 " + api.DesiredConfig + "- " + api.CurrentConfig + "- " + api.StateOfNode + "-")
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
