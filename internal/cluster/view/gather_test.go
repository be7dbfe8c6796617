package view_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/view"
)

// secrets are what must not be in an archive. Each is planted in a form that is used for it.
func secrets() []string {
	return []string{
		"hunter2", "s3cr3t", "AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfSomebody", "$6$salt$hashOfAPassword", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
		"c2VjcmV0LWNvbnRlbnQ", "MIIEowIBAAKCAQEA", "QWxhZGRpbjpvcGVu", "X9ZsignatureX9Z", "plainFileContent",
	}
}

const planted = `registry https://user:hunter2@r.example/x, https://b.example/o?X-Amz-Signature=X9ZsignatureX9Z&a=b, password=s3cr3t, "token": "s3cr3t", ` +
	`TOKEN='s3cr3t s3cr3t', ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfSomebody me@host, root:$6$salt$hashOfAPassword:1, ` +
	`seen eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln, Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln, Basic QWxhZGRpbjpvcGVu, data:;base64,c2VjcmV0LWNvbnRlbnQ=, ` +
	"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"

// secretive is a cluster with secrets everywhere.
func secretive(t *testing.T) server {
	t.Helper()
	anywhere := func(text string) map[string]any {
		o := object(t, text)
		metadata := o["metadata"].(map[string]any)
		metadata["managedFields"] = []any{map[string]any{"manager": "hunter2"}}
		metadata["annotations"] = map[string]any{
			"kubectl.kubernetes.io/last-applied-configuration": `{"spec":{"config":"plainFileContent"}}`, "other.example/x": "plainFileContent",
			"machineconfiguration.openshift.io/reason": planted, "machineconfiguration.openshift.io/state": "Degraded",
		}
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "NodeDegraded", "status": "True", "message": planted}}, "waiting": planted,
			"containerStatuses": []any{map[string]any{"name": "agent", "restartCount": 1}}}
		return o
	}
	mc := anywhere(`{"metadata":{"name":"50-secret"},"spec":{"osImageURL":"r.example/os@sha256:00","kernelArguments":["quiet","rd.iscsi.password=s3cr3t"],"surprise":"plainFileContent",
		"config":{"ignition":{"version":"3.4.0","security":{"tls":{"certificateAuthorities":[{"source":"https://x/?k=X9ZsignatureX9Z"}]}}},
		"storage":{"files":[{"path":"/etc/app.conf","contents":{"source":"data:,plainFileContent"}}]},
		"systemd":{"units":[{"name":"app.service","contents":"[Service]\nEnvironment=A=plainFileContent"}]},
		"passwd":{"users":[{"name":"core","passwordHash":"$6$salt$hashOfAPassword","sshAuthorizedKeys":["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfSomebody"]}]}}}}`)
	pod := anywhere(`{"metadata":{"name":"pivot-agent-x"},"spec":{"containers":[{"name":"agent","args":["node","--token","hunter2","--registry-password=s3cr3t","--host=/host"],
		"env":[{"name":"A","value":"plainFileContent"}],"envFrom":[{"secretRef":{"name":"a"}}],"livenessProbe":{"httpGet":{"httpHeaders":[{"name":"X","value":"plainFileContent"}]}}}],
		"volumes":[{"secret":{"secretName":"kept-name"}}]}}`)
	const in = "/namespaces/pivot-agent/"
	log := "/api/v1" + in + "pods/pivot-agent-x/log"
	other := func(name string) []any { return []any{anywhere(`{"metadata":{"name":"` + name + `"},"spec":{}}`)} }
	s := server{
		pools: other("worker"), rollouts: other("worker"), nodes: other("n1"), systems: other("n1"), configs: []any{mc},
		"/apis/machineconfiguration.openshift.io/v1/machineconfignodes": other("n1"),
		"/apis/apps/v1" + in + "daemonsets":                             other("pivot-agent"),
		"/apis/coordination.k8s.io/v1" + in + "leases":                  other("pivot-agent-controller"),
		"/api/v1" + in + "pods":                                         []any{pod},
		"/api/v1" + in + "events":                                       http.StatusForbidden,
		log:                                                             "began\x1b[2J\n" + planted + "\nended\n",
	}
	s[events] = []any{}
	for i := range 5 {
		e := anywhere(`{"metadata":{"name":"e` + string(rune('0'+i)) + `"},"reason":"UpdateFailed","involvedObject":{"name":"n1"}}`)
		e["message"] = planted
		s[events] = append(s[events].([]any), e)
	}
	return s
}

func gathered(t *testing.T, s server) map[string]string {
	t.Helper()
	var out bytes.Buffer
	g := view.Gatherer{Client: s.client(t), Namespaces: []string{"pivot-agent"}, Program: "pivotctl/1", Now: now()}
	if err := g.Gather(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return unpacked(t, &out)
}

// unpacked returns the files of an archive; order has their names as they come.
func unpacked(t *testing.T, archive io.Reader) (files map[string]string) {
	t.Helper()
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	files = map[string]string{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			files[order] = strings.Join(names, " ")
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "pivot-gather/")
		names, files[name] = append(names, name), string(data)
	}
}

// order is the key of the names of the files in an archive.
const order = ""

// TestGather: the archive has everything but the secrets, in a fixed order.
func TestGather(t *testing.T) {
	s := secretive(t)
	files := gathered(t, s)
	want := []string{"summary.txt", "status.json", "logs/pivot-agent/pivot-agent-x.agent.log", "logs/pivot-agent/pivot-agent-x.agent.previous.log",
		"objects/events-of-nodes.json", "objects/machineconfignodes.json", "objects/machineconfigs.json", "objects/nodes.json", "objects/nodesystems.json",
		"objects/pivot-agent/daemonsets.json", "objects/pivot-agent/leases.json", "objects/pivot-agent/pods.json", "objects/pools.json", "objects/rollouts.json"}
	if files[order] != strings.Join(want, " ") {
		t.Errorf("the files %s", files[order])
	}
	for name, text := range files {
		for _, secret := range secrets() {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s:\n%s", name, secret, text)
			}
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON: %s", name, text)
		}
		if strings.ContainsRune(text, 0x1b) {
			t.Errorf("%s would control a terminal", name)
		}
	}
	for name, kept := range map[string][]string{
		"objects/machineconfigs.json":              {"50-secret", "/etc/app.conf", "app.service", `"users": 1`, "quiet", "r.example/os@sha256:00", "digest "},
		"objects/pivot-agent/pods.json":            {"kept-name", "--host=/host", `"env": "(removed)"`},
		"objects/nodes.json":                       {`"machineconfiguration.openshift.io/state": "Degraded"`, `"other.example/x": "(removed)"`},
		"objects/events-of-nodes.json":             {`"e4"`, "UpdateFailed"},
		"logs/pivot-agent/pivot-agent-x.agent.log": {"began", "ended", "r.example/x"},
		"summary.txt":                              {"gathered by pivotctl/1 at 2026-03-04T05:06:07Z", "missing: objects/pivot-agent/events.json: cannot read", "missing: objects/pivot-agent/deployments.json"},
	} {
		for _, text := range kept {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s lacks %q:\n%s", name, text, files[name])
			}
		}
	}
}

// TestGatherBounds: a log is its end, and a log that is larger than what is read is named as missing.
func TestGatherBounds(t *testing.T) {
	s := secretive(t)
	log := "/api/v1/namespaces/pivot-agent/pods/pivot-agent-x/log"
	s[log] = strings.Repeat("a line of a log\n", 1<<17) + "the last line\n"
	files := gathered(t, s)
	if got := files["logs/pivot-agent/pivot-agent-x.agent.log"]; len(got) > 1<<20 || !strings.HasSuffix(got, "the last line\n") || !strings.HasPrefix(got, "a line") {
		t.Errorf("the log has %d bytes", len(got))
	}
	s[log] = strings.Repeat("x", 33<<20)
	if files := gathered(t, s); !strings.Contains(files["summary.txt"], "missing: logs/pivot-agent/pivot-agent-x.agent.log: ") {
		t.Errorf("%s", files["summary.txt"])
	}
}
