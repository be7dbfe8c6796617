package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reason is the reason why a block is not run, and the test that covers it instead.
type reason struct{ why, test string }

// notRun is the blocks that TestDocuments does not run, by document and first line.
var notRun = map[string]reason{
	"README.md: make demo": {"they boot machines, for minutes, and run this test too", "test/tools/demo.TestReadme"},
	`README.md: podman run --rm -it --privileged -v "$PWD:/src:ro" docker.io/library/golang:1.26-bookworm sh -c 'cp -a /src /pivot && cd /pivot && make demo'`: {"it boots machines too, in an image from the internet", "test/tools/demo.TestReadme"},
	"contrib/ansible/README.md: ansible-galaxy collection build contrib/ansible":                                                                               {"it installs a collection for the reader", "cmd/pivot.TestAnsible"},
	"docs/dev/benchmark.md: make bench":                                                                                                     {"it takes an hour and wants the machine for itself", "test/tools/bench.TestShort"},
	"docs/dev/benchmark.md: make bench-boot":                                                                                                {"it boots machines, for hours, and wants the host for itself", "test/tools/bootbench.TestWholeFirstBoots"},
	"docs/dev/benchmark.md: go run ./test/tools/scaleup -svg scaleup.svg":                                                                   {"it takes eight minutes", "test/worlds/scaleup.TestScaleUp"},
	"docs/dev/benchmark.md: go run ./test/tools/bench -size 600MB -files 12000 -images /var/tmp/images":                                     {"the same, with a profiler", "test/tools/bench.TestShort"},
	"docs/dev/benchmark.md: git clone https://github.com/coreos/fedora-coreos-config && go run ./test/tools/unchanged fedora-coreos-config": {"it clones a repository from the internet", "test/tools/unchanged.TestCompare"},
	"docs/recipes/disconnected.md: oc adm release mirror --registry-config=pull-secret.json --print-mirror-instructions=idms \\":            {"oc and a release of OpenShift are not to be had; the same with skopeo is the next block", "test/suites/docs.TestDocuments"},
	`docs/recipes/openshift.md: podman pull registry.example/pivot:1.4.0`:                                                                   {"it installs a program on this host", "test/tools/ociimage.TestPrograms"},
	`docs/recipes/openshift.md: oc patch clusterversion version --type merge -p '{"spec":{"overrides":[{"kind":"Deployment","group":"apps","namespace":"openshift-machine-config-operator","name":"machine-config-operator","unmanaged":true}]}}'`: {"it wants a cluster of OpenShift", "internal/cluster/node.TestStories"},
	"docs/recipes/openshift.md: oc label node n1 pivot-":         {"it wants a cluster of OpenShift", "internal/cluster/node.TestStories"},
	"docs/recipes/image.md: ostree init --repo=repo --mode=bare": {"registry.example stands for the reader's registry", "cmd/pivot.TestMachineScripts"},
	"docs/recipes/fcos.md: pivotctl config ignition --image quay.io/fedora/fedora-coreos:stable --append-karg nosmt --file /etc/motd=motd.txt --pivot-url https://files.example/pivot --pivot-hash sha256-HEX >machine.ign": {"HEX stands for the hash of the reader's program", "cmd/pivotctl.TestScripts"},
	"docs/selinux.md: semodule -i /usr/share/selinux/packages/pivot.cil":                                                               {"it changes the SELinux policy of the machine that it runs on", "test/suites/e2e.TestSELinux"},
	"docs/machineconfig.md: python3 -m http.server --bind 127.0.0.1 --directory web 8000 &":                                            {"it runs until it is stopped; the test serves the directory itself, at a free port", "test/suites/docs.TestDocuments"},
	"docs/recipes/container.md: make build image":                                                                                      {"it pushes to a registry of the reader's", "test/suites/packaging.TestImage"},
	`docs/recipes/container.md: podman run --rm -v "$PWD/conf:/conf:ro,Z" registry.example/pivot:1.4.0 pivotctl config validate /conf`: {"not every host of the tests can run containers", "test/tools/ociimage.TestPrograms"},
	"docs/recipes/container.md: podman pull registry.example/pivot:1.4.0":                                                              {"it installs a program on this host", "test/tools/ociimage.TestPrograms"},
	"docs/recipes/container.md: make build install DESTDIR=/var/lib/extensions/pivot":                                                  {"it changes /usr of this host", "test/suites/packaging.TestSysext"},
	"docs/cluster-admission.md: kubectl apply -k deploy/base":                                                                          {"it wants a cluster; the test applies the same files at a real API server", "internal/cluster/admission.TestWebhooks"},
	"docs/cluster-admission.md: kubectl auth can-i weaken machineconfigs/50-lab --as anna":                                             {"it wants a cluster", "internal/cluster/admission.TestWebhooks"},
	"docs/cluster-render.md: kubectl apply -f deploy/fleet/rbac-render.yaml":                                                           {"it wants a cluster; the test applies the same files at a real API server", "internal/cluster/render.TestRender"},
	"docs/cluster-render.md: kubectl annotate mc 50-worker-files machine-pivot.io/refetch=\"$(date)\" --overwrite":                     {"it wants a cluster", "internal/cluster/render.TestRender"},
	"docs/cluster-view.md: kubectl apply -f deploy/fleet/rbac-view.yaml":                                                               {"it wants a cluster; the test applies the same files at a real API server", "internal/cluster/view.TestCluster"},
	"docs/cluster-view.md: (printf 'apiVersion: monitoring.coreos.com/v1\\nkind: PrometheusRule\\nmetadata: {name: pivot}\\nspec:\\n'": {"it wants a cluster with the Prometheus operator", "test/suites/rules.TestAlerts"},
	"docs/cluster-view.md: pivot-agent node --listen-metrics 0.0.0.0:8796 \\":                                                          {"it wants a node of a cluster", "cmd/pivot-agent.TestMetricsByTLS"},
	"docs/cluster-ignition.md: kubectl apply -f deploy/fleet/rbac-server.yaml":                                                         {"it wants a cluster; the test applies the same files at a real API server", "internal/cluster/configserver.TestServer"},
	"docs/cluster-ignition.md: pivotctl config pointer --url https://mcs.example:22623/config/worker --server-ca ca.pem \\":            {"it wants a cluster", "cmd/pivotctl.TestPointerCommand"},
	"docs/cluster-rollout.md: kubectl patch poolrollout worker --type merge -p '{\"metadata\":{\"finalizers\":null}}'":                 {"it wants a cluster", "internal/cluster/rollout.TestKube"},
	"docs/cluster.md: make build agent-image fleet-image install-yaml REGISTRY=registry.example":                                       {"it pushes to a registry of the reader's", "test/tools/installyaml.TestInstall"},
	"docs/cluster.md: kubectl apply -f pools.yaml":                                                                                     {"it wants a cluster; the test does the same at a real API server", "test/suites/fleet.TestFleet"},
	"docs/cluster.md: kubectl patch mcp worker --type merge -p '{\"spec\":{\"paused\":true}}'":                                         {"it wants a cluster", "internal/cluster/rollout.TestDecide"},
	"docs/cluster.md: systemctl enable --now pivot-agent.service":                                                                      {"it starts a unit of this host", "test/suites/agent.TestUnitDeployed"},
	"docs/cluster.md: pivot apply --reboot=if-needed mc.json":                                                                          {"it changes a node of a cluster", "test/suites/e2e.TestNode"},
	"docs/cluster-pinning.md: kubectl get node NAME -o jsonpath='{.status.allocatable}'":                                               {"it wants a node of a cluster", "test/suites/agent.TestWorkloads"},
	"docs/cluster-pinning.md: kubectl patch node NAME --subresource=status --type=json \\":                                             {"it wants a node of a cluster", "test/suites/agent.TestWorkloads"},
	"docs/cluster-pinning.md: systemctl enable --now pivot-static-pods.service pivot-static-pods.path":                                 {"it starts units of this host", "test/suites/packaging.TestStaticPodsUnits"},
	"docs/dev/testing.md: make test-host IMAGE=fedora-coreos-qemu.x86_64.qcow2 OSIMAGE=docker://quay.io/fedora/fedora-coreos:stable":   {"it wants a disk image of a real system", "test/suites/e2e.TestHost"},
	"docs/dev/testing.md: podman create --name os quay.io/fedora/fedora-coreos:stable":                                                 {"it wants the container image of a real system", "test/suites/e2e.TestHost"},
	"packaging/README.md: go mod edit -module example.org/pivot":                                                                       {"it renames the module in all files", "test/suites/rules.TestImports"},
}

// TestNotRun: each block that is not run is covered by an existing test.
func TestNotRun(t *testing.T) {
	for name, r := range notRun {
		dir, function, ok := strings.Cut(r.test, ".")
		if !ok || r.why == "" {
			t.Errorf("%s: no reason, or no test: %+v", name, r)
			continue
		}
		function, name, _ := strings.Cut(function, "/")
		if !contains(t, dir, "func "+function+"(") || name != "" && !contains(t, dir, `"`+name+`"`) {
			t.Errorf("%s: there is no test %s", name, r.test)
		}
	}
}

// contains reports whether a test file in a directory contains a text.
func contains(t *testing.T, dir, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), text) {
			return true
		}
	}
	return false
}
