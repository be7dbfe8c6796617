package docs_test

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/test/worlds/registry"
)

// disconnected sets up a machine that reaches a registry and a mirror, and later only the mirror.
func disconnected(m *machine) {
	m.notes["a mirror without images"] = func() {
		empty, err := registry.Start(registry.Options{})
		m.must(err)
		m.t.Cleanup(func() { m.must(empty.Close()) })
		m.mirror = empty
		m.names["mirror.example:5000"] = empty.Host()
		m.write("etc/containers/certs.d/"+empty.Host()+"/ca.crt", string(empty.CA()))
		m.secrets(m.host.Registry, empty)
		// skopeo looks here for root's credentials from podman login.
		m.mustRun("mkdir -p /run/containers/0 && cp /var/lib/kubelet/config.json /run/containers/0/auth.json")
	}
	m.notes["Ignition has written its files, and the registry cannot be reached"] = func() {
		m.mustRun("rm -r /run/containers /var/lib/kubelet")
		m.must(m.host.Registry.SetDown(true))
		m.ignite("worker.ign")
	}
}

// ignite writes the files of an Ignition config, like Ignition before a first boot.
func (m *machine) ignite(name string) {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	m.must(err)
	var config struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	m.must(json.Unmarshal(data, &config))
	written := 0
	for _, file := range config.Storage.Files {
		if !strings.HasPrefix(file.Path, "/etc/") && !strings.HasPrefix(file.Path, "/var/") {
			m.t.Errorf("a file that no machine of an image has: %s", file.Path)
			continue
		}
		m.write(strings.TrimPrefix(file.Path, "/"), m.decoded(file.Contents.Source))
		written++
	}
	if written < 3 {
		m.t.Errorf("only %d files in %s", written, data)
	}
}

// decoded returns the content of an uncompressed data URL.
func (m *machine) decoded(source string) string {
	m.t.Helper()
	_, text, found := strings.Cut(source, ",")
	if !strings.HasPrefix(source, "data:,") || !found {
		m.t.Fatalf("content of another form: %.60s", source)
	}
	text, err := url.PathUnescape(text)
	m.must(err)
	return text
}
