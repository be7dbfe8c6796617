package configserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/vincent-petithory/dataurl"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/author/snapshot"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/configserver"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/kargs"
	"machine-pivot/test/tools/metrics"
	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/nodeagent"
)

const namespace = "pivot-fleet-server"

// world is two servers of a real API server, with the rights of deploy/fleet.
type world struct {
	*testing.T
	plane   *controlplane.ControlPlane
	admin   client.Client
	urls    []string
	counted *prometheus.Registry // of the first server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, plane: controlplane.Start(t)}
	w.plane.Deploy("../../../deploy/base")
	w.plane.ApplyFile("../../../deploy/fleet/rbac-server.yaml")
	var err error
	if w.admin, err = client.New(w.plane.Admin(), client.Options{Scheme: controlplane.Scheme(t)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.serve()
	}
	return w
}

// account returns the configuration of a client with the rights of the server.
func (w *world) account() *rest.Config {
	return w.plane.User("system:serviceaccount:"+namespace+":pivot-fleet-server", "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// serve starts a server.
func (w *world) serve() {
	w.Helper()
	m, err := ctrl.NewManager(w.account(), manager.Options{
		Scheme: controlplane.Scheme(w), Cache: configserver.Cache(namespace), Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		w.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	counted := prometheus.NewRegistry()
	if err := configserver.Setup(m, configserver.Options{Listener: listener, Namespace: namespace, MaxConnections: 100, MaxPerAddress: 100, Metrics: counted}); err != nil {
		w.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.urls = append(w.urls, "http://"+listener.Addr().String())
	if w.counted == nil {
		w.counted = counted
	}
}

// get asks a server for a config.
func (w *world) get(server int, role, secret string) (int, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.urls[server]+"/config/"+role, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.4.0")
	r.Header.Set("Authorization", "Bearer "+secret)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// eventually waits until all servers answer with a status, and a text in it.
func (w *world) eventually(what, role, secret string, status int, text string) {
	w.Helper()
	for server := range w.urls {
		controlplane.Eventually(w, what, func(context.Context) bool {
			code, body := w.get(server, role, secret)
			return code == status && strings.Contains(body, text)
		})
	}
}

// machineConfig creates the rendered MachineConfig of a role, as the author's program renders it.
func (w *world) machineConfig(role, argument string) *authored.MachineConfig {
	w.Helper()
	m := rendered(w.T, role, argument)
	text, err := m.MarshalJSON()
	if err != nil {
		w.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		w.Fatal(err)
	}
	w.plane.Apply(object)
	return m
}

// rendered renders a role as "pivotctl config serve" does.
func rendered(t *testing.T, role, argument string) *authored.MachineConfig {
	t.Helper()
	rules := authored.Rules{KernelArguments: kargs.DefaultPolicy()}
	all, report := authored.Decode("a.yaml", fmt.Appendf(nil, `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: %s}}
spec:
  kernelArguments: [%s]
  config:
    ignition: {version: 3.4.0}
    storage: {files: [{path: /etc/motd, mode: 0644, contents: {source: "data:,hi"}}]}
`, role, argument), rules)
	m, more, err := authored.Renderer{Rules: rules, Inline: snapshot.New(rules.KernelArguments).Inline}.Merge(t.Context(), all, role)
	if err != nil || report.Failed() || more.Failed() {
		t.Fatal(report, more, err)
	}
	return m
}

// pool makes a pool have a configuration, and its nodes another one.
func (w *world) pool(role, wanted, had string, machines, updated int32) {
	w.Helper()
	p := &api.MachineConfigPool{}
	p.Name = role
	w.apply(fmt.Sprintf(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigPool","metadata":{"name":%q},"spec":{"configuration":{"name":%q}}}`, role, wanted))
	if err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		w.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status":{"observedGeneration":%d,"machineCount":%d,"updatedMachineCount":%d,"configuration":{"name":%q}}}`, p.Generation, machines, updated, had)
	if err := w.admin.Status().Patch(w.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.Fatal(err)
	}
}

func (w *world) apply(text string) {
	w.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		w.Fatal(err)
	}
	w.plane.Apply(o)
}

// token creates the Secret of a token.
func (w *world) token(secret, role, uses string) *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{Type: provision.TokenSecretType, StringData: provision.TokenData(secret, role, time.Now().Add(time.Hour), uses)}
	s.Namespace, s.Name = namespace, secret
	if err := w.admin.Create(w.Context(), s); err != nil {
		w.Fatal(err)
	}
	return s
}

// TestServer is two servers through a day, at a real API server.
func TestServer(t *testing.T) {
	w := newWorld(t)
	old, next := w.machineConfig("worker", "quiet"), w.machineConfig("worker", "loglevel=3")
	w.token("all", "worker", provision.Unlimited)
	w.eventually("a pool that is not there yet", "worker", "all", 503, "no config of")
	w.pool("worker", old.Name, old.Name, 3, 3)
	w.eventually("what the pool has", "worker", "all", 200, old.Name)
	want, report := provision.Config(old, "3.4.0")
	if _, got := w.get(0, "worker", "all"); got != string(want) || report.Failed() {
		t.Errorf("it is not what pivotctl serves for the same MachineConfigs:\n%s\n%s", got, want)
	}

	t.Run("rollout", func(*testing.T) {
		w.pool("worker", next.Name, old.Name, 3, 1)
		w.eventually("a proven configuration", "worker", "all", 200, next.Name)
		w.apply(`{"apiVersion":"machine-pivot.io/v1alpha1","kind":"PoolRollout","metadata":{"name":"worker"}}`)
		r := &api.PoolRollout{}
		r.Name = "worker"
		if err := w.admin.Status().Patch(t.Context(), r, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"givenUp":%q}}`, next.Name))); err != nil {
			t.Fatal(err)
		}
		w.eventually("a configuration that was given up", "worker", "all", 200, old.Name)
	})
	t.Run("missing", func(*testing.T) {
		w.pool("worker", "rendered-worker-missing", "rendered-worker-missing", 3, 3)
		w.pool("master", w.machineConfig("master", "quiet").Name, "", 0, 0)
		w.token("m", "master", provision.Unlimited)
		w.eventually("another pool", "master", "m", 200, "rendered-master-")
		w.eventually("what was served before", "worker", "all", 200, old.Name)
	})
	t.Run("tokens", w.tokens)
	t.Run("rights", w.rights)
	t.Run("pod", w.restricted)
	t.Run("joins", func(t *testing.T) { _, served := w.get(0, "worker", "all"); joins(t, served, old.Name) })
	t.Run("metrics", func(t *testing.T) {
		families, err := w.counted.Gather()
		if err != nil || len(families) != 1 {
			t.Fatalf("%v, %v", families, err)
		}
		var page strings.Builder
		if _, err := expfmt.MetricFamilyToText(&page, families[0]); err != nil {
			t.Fatal(err)
		}
		metrics.Check(t, "../../../docs/cluster-view.md", "server", page.String())
		for _, m := range families[0].Metric {
			if p := m.Label[1].GetValue(); p != "" && p != "worker" && p != "master" {
				t.Errorf("a client has made the label %q", p)
			}
		}
	})
	w.token("late", "worker", "1")
	w.eventually("the late token is known", "worker", "late", 200, old.Name)
	w.token("unused", "worker", "1")
	controlplane.Eventually(t, "the pools of deleted objects are not served", func(ctx context.Context) bool {
		p := &api.MachineConfigPool{}
		p.Name = "master"
		_ = client.IgnoreNotFound(w.admin.Delete(ctx, p))
		code, _ := w.get(1, "master", "m")
		return code == 503
	})
	w.plane.StopServer()
	w.eventually("without the API server, what is not counted", "worker", "all", 200, old.Name)
	w.eventually("and retries", "worker", "late", 200, old.Name)
	if code, _ := w.get(0, "worker", "unused"); code != 503 && code != 401 {
		t.Errorf("a use that cannot be counted: %d", code)
	}
	w.plane.StartServer()
	w.eventually("and it goes on afterwards", "worker", "unused", 200, old.Name)
}

// tokens: one that is wrong does not disturb the others, and one that is deleted admits nobody.
func (w *world) tokens(t *testing.T) {
	broken := w.token("broken", "worker", "many")
	once := w.token("once", "worker", "1")
	w.eventually("a new token", "worker", "once", 200, "rendered-worker-")
	if code, _ := w.get(0, "worker", "broken"); code != 401 {
		t.Errorf("a token whose Secret is wrong: %d", code)
	}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(once), once); err != nil || !strings.HasPrefix(string(once.Data[provision.TokenState]), `{"used":1,`) {
		t.Errorf("%s, %v", once.Data, err)
	}
	if err := w.admin.Patch(t.Context(), broken, client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"uses":"3"}}`))); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is corrected", "worker", "broken", 200, "rendered-worker-")
	if err := w.admin.Delete(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is deleted", "worker", "broken", 401, "no valid token")
	opaque := &corev1.Secret{StringData: provision.TokenData("opaque", "worker", time.Now().Add(time.Hour), "1")}
	opaque.Namespace, opaque.Name = namespace, "opaque"
	if err := w.admin.Create(t.Context(), opaque); err != nil {
		t.Fatal(err)
	}
	w.token("elsewhere", "worker", "1")
	w.eventually("a later token", "worker", "elsewhere", 200, "rendered-worker-")
	if code, _ := w.get(0, "worker", "opaque"); code != 401 {
		t.Errorf("a Secret of another type: %d", code)
	}
}

// rights: what the server's account may not do.
func (w *world) rights(t *testing.T) {
	c, err := client.New(w.account(), client.Options{Scheme: controlplane.Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	p := &api.MachineConfigPool{}
	p.Name = "worker"
	s := &corev1.Secret{StringData: map[string]string{"a": "b"}}
	s.Namespace, s.Name = namespace, "new"
	node := &corev1.Node{}
	node.Name = "n1"
	for what, err := range map[string]error{
		"list the Secrets of another namespace": c.List(t.Context(), &corev1.SecretList{}, client.InNamespace("kube-system")),
		"create a Secret":                       c.Create(t.Context(), s),
		"delete a Secret":                       c.Delete(t.Context(), s),
		"change a pool":                         c.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))),
		"list MachineConfigs":                   c.List(t.Context(), &api.MachineConfigList{}),
		"read a Node":                           c.Get(t.Context(), client.ObjectKeyFromObject(node), node),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("it may %s: %v", what, err)
		}
	}
}

// restricted: the API server takes the manifests, and a pod of the Deployment into the namespace, which has restricted
// Pod Security.
func (w *world) restricted(t *testing.T) {
	w.plane.ApplyFile("../../../deploy/fleet/server.yaml")
	var d appsv1.Deployment
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "pivot-fleet-server"}, &d); err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{Spec: d.Spec.Template.Spec}
	p.Namespace, p.Name = namespace, "p"
	if err := w.admin.Create(t.Context(), p, client.DryRunAll); err != nil {
		t.Error(err)
	}
	p.Spec.Containers[0].SecurityContext.RunAsNonRoot = nil
	if err := w.admin.Create(t.Context(), p, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that may run as root: %v", err)
	}
}

// joins: after a first boot that has applied a served config, a machine joins its cluster with that MachineConfig,
// without another reboot.
func joins(t *testing.T, served, want string) {
	var written struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal([]byte(served), &written); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range written.Storage.Files {
		files[f.Path] = f.Contents.Source
	}
	text, err := decoded(files[machineconfig.EncapsulatedPath])
	if err != nil {
		t.Fatal(err)
	}
	has, report := machineconfig.Parse(text, machineconfig.Host{})
	if report.Failed() || has.Name != want {
		t.Fatalf("%+v %s", has, report)
	}
	annotations, err := decoded(files["/etc/machine-config-daemon/node-annotations.json"])
	if err != nil || !strings.Contains(string(annotations), `"`+api.CurrentConfig+`":"`+want+`"`) {
		t.Errorf("%s, %v", annotations, err)
	}
	n := nodeagent.New()
	n.Configs[has.Name] = nodeagent.Config{}
	n.Node.Annotations = map[string]string{}
	n.Machine = nodeagent.Machine{Current: has.Name, RecordedBy: string(machineconfig.RecordedByFirstBoot)}
	if _, err := n.Run(func() bool { return n.State() == api.StateDone }); err != nil {
		t.Fatal(err)
	}
	if n.Note(api.CurrentConfig) != want || n.Note(api.DesiredConfig) != want || n.Machine.Boots != 0 {
		t.Errorf("%s", n)
	}
}

// decoded returns the contents of a file of Ignition.
func decoded(source string) ([]byte, error) {
	u, err := dataurl.DecodeString(source)
	if err != nil {
		return nil, err
	}
	return u.Data, nil
}
