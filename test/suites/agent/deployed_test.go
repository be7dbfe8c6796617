package agent

import (
	"context"
	"crypto/tls"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/test/tools/authority"
	"machine-pivot/test/tools/metrics"
	"machine-pivot/test/worlds/hostsystemd"
)

// These tests start the agent as deploy/ starts it, at the ports that it has there.

const deploy = "../../../deploy/"

// TestPodDeployed: the container of deploy/pod-metrics, started with what its pod gives to it and nothing else, is the
// agent of its node, and Prometheus reads its metrics.
func TestPodDeployed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd and a control plane")
	}
	if !hostsystemd.InsideWithNetwork(t) {
		return
	}
	w := newWorld(t)
	w.listen = "127.0.0.1:8797"
	w.overlay("/usr/bin", map[string]string{"pivot": w.hostPivot()})
	w.overlay("/etc", map[string]string{"kubernetes/kubelet.conf": w.read(filepath.Join(w.dir, "config"))})
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/rancher"} {
		w.command("mkdir", "-p", dir)
	}
	w.plane.Deploy(deploy + "pod-metrics")
	set, err := w.client.AppsV1().DaemonSets("pivot-agent").Get(t.Context(), "pivot-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ours := authority.New(t, "ours")
	w.run(set.Spec.Template.Spec, func(dir string) { ours.Write(dir, "pivot-agent") })
	w.done("a")
	container := set.Spec.Template.Spec.Containers[0]
	if container.LivenessProbe != nil {
		t.Error("whoever keeps the agent from an answer has kubelet kill it")
	}
	ready := container.ReadinessProbe.HTTPGet
	if address := net.JoinHostPort(ready.Host, ready.Port.String()); address != w.listen {
		t.Errorf("kubelet asks %s", address)
	}
	for _, path := range []string{"/healthz", ready.Path} {
		w.eventually(path, func() bool { return w.answers(path) })
	}
	w.scraped(ours)
}

// TestUnitDeployed: systemd starts the unit, with its sandbox and the drop-in for metrics. It is the agent of the node
// that kubeadm has given kubelet's credentials for, and Prometheus reads its metrics.
func TestUnitDeployed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts systemd and a control plane")
	}
	if !hostsystemd.InsideWithNetwork(t) {
		return
	}
	w := newWorld(t)
	w.listen = "127.0.0.1:8797"
	ours := authority.New(t, "ours")
	certificates := t.TempDir()
	ours.Write(certificates, "pivot-agent")
	w.overlay("/usr/bin", map[string]string{"pivot": w.hostPivot(), "pivot-agent": w.read(w.agent)})
	w.overlay("/etc", map[string]string{
		"kubernetes/kubelet.conf":             w.read(filepath.Join(w.dir, "config")),
		"pivot/metrics/" + authority.CertFile: w.read(filepath.Join(certificates, authority.CertFile)),
		"pivot/metrics/" + authority.KeyFile:  w.read(filepath.Join(certificates, authority.KeyFile)),
		"pivot/metrics/" + authority.CAFile:   w.read(filepath.Join(certificates, authority.CAFile)),
	})
	units := hostsystemd.Units(t)
	w.write(filepath.Join(units, "pivot-agent.service"), w.read(deploy+"host/pivot-agent.service"))
	w.write(filepath.Join(units, "pivot-agent.service.d/metrics.conf"), w.read(deploy+"host/metrics.conf"))
	for _, command := range []string{"daemon-reload", "start pivot-agent.service"} {
		w.command("systemctl", strings.Fields(command)...)
	}
	w.done("a")
	w.eventually("/readyz", func() bool { return w.answers("/readyz") })
	w.scraped(ours)
}

// scraped reads the agent's metrics as deploy/monitoring/scrape.yaml says, with certificates of an authority. They are
// those of docs/cluster-view.md, which the alert rules use. Nobody else gets them.
func (w *world) scraped(ours authority.Authority) {
	w.Helper()
	var scrape struct {
		Configs []struct {
			Job string `yaml:"job_name"`
			TLS struct {
				Name string `yaml:"server_name"`
			} `yaml:"tls_config"`
			Relabel []struct {
				Sources            []string `yaml:"source_labels"`
				Target             string   `yaml:"target_label"`
				Regex, Replacement string
			} `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(w.read(deploy+"monitoring/scrape.yaml")), &scrape); err != nil {
		w.Fatal(err)
	}
	agents := scrape.Configs[len(scrape.Configs)-1]
	relabel := agents.Relabel[0]
	at := func(kubelet string) string {
		return regexp.MustCompile("^(?:"+relabel.Regex+")$").ReplaceAllString(kubelet, relabel.Replacement)
	}
	address := at("127.0.0.1:10250")
	if agents.Job != "pivot-agent" || !slices.Equal(relabel.Sources, []string{"__address__"}) || relabel.Target != "__address__" || at("[2001:db8::1]:10250") != "[2001:db8::1]:8796" {
		w.Fatalf("scrape.yaml has %+v", agents)
	}
	get := func(certificates ...tls.Certificate) (string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), ServerName: agents.TLS.Name, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + address + "/metrics")
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	text, err := get(ours.Issue("prometheus"))
	if err != nil {
		w.Fatal(err)
	}
	metrics.Check(w, "../../../docs/cluster-view.md", "agent", text)
	for _, name := range regexp.MustCompile(`\bpivot_agent_[a-z_]+`).FindAllString(w.read(deploy+"monitoring/alerts.yaml"), -1) {
		if !strings.Contains(text, "\n# TYPE "+name+" ") {
			w.Errorf("an alert needs %s, which the agent does not have:\n%s", name, text)
		}
	}
	others := authority.New(w, "others")
	for what, certificates := range map[string][]tls.Certificate{"no certificate": nil, "one of another authority": {others.Issue("prometheus")}} {
		if text, err := get(certificates...); err == nil {
			w.Errorf("with %s: %s", what, text)
		}
	}
}

// answers reports whether the agent answers at a path that all is well.
func (w *world) answers(path string) bool {
	r, err := http.Get("http://" + w.listen + path)
	return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

// inContainer becomes a process of a container: the root is that of this host, with the files of a directory over it,
// and with mounts at pairs of paths. It has no capability.
const inContainer = `set -e
mount -t overlay overlay -o "lowerdir=$1:/" "$2"
root=$2; shift 2
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do mount --rbind "$1" "$root$2"; shift 2; done
shift
exec chroot "$root" setpriv --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
`

// run runs the container of a pod of a DaemonSet on the node until the test ends. secret fills the directory of a volume
// that is a Secret.
func (w *world) run(spec corev1.PodSpec, secret func(dir string)) {
	w.Helper()
	c := spec.Containers[0]
	spec.NodeName = node
	pod, err := w.client.CoreV1().Pods("pivot-agent").Create(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pivot-agent-"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	tree, root := w.TempDir(), w.TempDir()
	w.write(filepath.Join(tree, "usr/bin/pivot-agent"), w.read(w.agent))
	script := []string{"-m", "-p", "-f", "-i", "-u", "--kill-child=KILL", "sh", "-c", inContainer, "sh", tree, root}
	for _, m := range c.VolumeMounts {
		if err := os.MkdirAll(filepath.Join(tree, m.MountPath), 0o755); err != nil {
			w.Fatal(err)
		}
		for _, v := range spec.Volumes {
			switch {
			case v.Name != m.Name:
			case v.HostPath != nil:
				script = append(script, v.HostPath.Path, m.MountPath)
			case v.Secret != nil:
				secret(filepath.Join(tree, m.MountPath))
			}
		}
	}
	agent := exec.CommandContext(context.WithoutCancel(w.Context()), "unshare", append(append(append(script, "--"), c.Command...), c.Args...)...)
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			e.Value = map[string]string{"spec.nodeName": node, "metadata.namespace": pod.Namespace, "metadata.name": pod.Name}[e.ValueFrom.FieldRef.FieldPath]
		}
		agent.Env = append(agent.Env, e.Name+"="+e.Value)
	}
	w.begin(agent)
}

// hostPivot returns a program that is pivot's stand-in, wherever it is.
func (w *world) hostPivot() string {
	return "#!/bin/sh\nexec " + filepath.Join(w.dir, "pivot") + " \"$@\"\n"
}

// overlay adds files, which are programs, to a directory of the host, as long as the test runs.
func (w *world) overlay(dir string, files map[string]string) {
	w.Helper()
	over := w.TempDir()
	for name, text := range files {
		w.write(filepath.Join(over, name), text)
	}
	w.command("mount", "-t", "overlay", "overlay", "-o", "lowerdir="+over+":"+dir, dir)
	w.Cleanup(func() { w.command("umount", "-l", dir) })
}

func (w *world) command(name string, args ...string) {
	w.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		w.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

func (w *world) read(file string) string {
	w.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// write writes a file that root may execute.
func (w *world) write(file, text string) {
	w.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), fs.FileMode(0o755))
	}
	if err != nil {
		w.Fatal(err)
	}
}
