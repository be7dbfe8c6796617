package docs_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// onMachines has the setup of the machine for each document with commands of a machine.
var onMachines = map[string]func(*machine){
	"README.md":             byHand,
	"docs/byhand.md":        installed,
	"docs/failed.md":        failed,
	"docs/bootc-content.md": func(*machine) {},
	"docs/registries.md":    registries,
	"docs/status.md":        installed,

	"docs/recipes/bootc.md":        besideBootc,
	"docs/recipes/disconnected.md": disconnected,
	"docs/recipes/openshift.md":    oneNode,
	"docs/windows.md":              fleetLock,
}

// proxied sets up a registry that is reachable only through a proxy, and checks the proxy's log.
func proxied(m *machine) {
	var proxy *registry.Proxy
	m.notes["a registry that only the proxy reaches"] = func() {
		r, err := registry.Start(registry.Options{Names: []string{"quay.example"}, Anonymous: true})
		m.must(err)
		m.t.Cleanup(func() { m.must(r.Close()) })
		legacy, err := oscontainer.Legacy(m.host.Archive, m.host.Commit, "B.2", oscontainer.WithWorkDir(m.t.TempDir()))
		m.must(err)
		_, err = r.Push(m.t.Context(), "os", "4.14", legacy)
		m.must(err)
		m.write("etc/containers/certs.d/quay.example/ca.crt", string(r.CA()))
		proxy, err = registry.StartProxy(r.Host(), "", "")
		m.must(err)
		m.t.Cleanup(func() { m.must(proxy.Close()) })
		m.names["proxy.example:3128"] = proxy.Host()
	}
	m.notes["the proxy was asked"] = func() {
		if log := proxy.Log(); len(log) == 0 || slices.ContainsFunc(log, func(asked string) bool { return asked != "quay.example:443" }) {
			m.t.Errorf("the proxy was asked for %q", log)
		}
	}
}

// byHand provides a MachineConfig to apply.
func byHand(m *machine) {
	m.notes["a MachineConfig"] = func() {
		m.put("worker.yaml", "metadata: {name: rendered-worker-1}\nspec:\n  osImageURL: registry.example/os@"+m.legacy+"\n"+
			"  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files: [{path: /etc/motd, contents: {source: \"data:,hello\"}}]\n")
	}
}

// besideBootc checks that the machine follows the tag, as bootc reads that.
func besideBootc(m *machine) {
	m.notes["a host of bootc"] = func() {}
	m.notes["it follows the tag"] = func() {
		origin, status := m.run("cat /sysroot/ostree/deploy/os/deploy/*.origin")
		if status != 0 || !strings.Contains(origin, "container-image-reference=ostree-unverified-registry:registry.example/os:stable\n") {
			m.t.Errorf("the origins are\n%s", origin)
		}
		if out, status := m.run("pivot status"); status != 0 || !strings.Contains(out, "follows  registry.example/os:stable\n") {
			m.t.Errorf("the status is\n%s", out)
		}
	}
}

// oneNode provides a node with the MachineConfig that the machine-config-daemon has recorded, and which it has.
func oneNode(m *machine) {
	m.notes["a node of the machine-config-daemon"] = func() {
		m.write("etc/motd", "hello\n")
		m.write("etc/machine-config-daemon/currentconfig", `{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"rendered-worker-1"},`+
			`"spec":{"osImageURL":"","config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/motd","mode":420,"contents":{"source":"data:,hello%0A"}}]}}}}`)
	}
}

// failed provides a first boot that failed.
func failed(m *machine) {
	m.notes["a first boot that is refused"] = func() {
		m.mustRun("rm -rf /var/lib/pivot")
		m.write("etc/ignition-machine-config-encapsulated.json", `{"metadata":{"name":"rendered-worker-1"},"spec":{"fips":true,"osImageURL":"registry.example/os@`+m.stable+`"}}`)
		m.run("pivot firstboot")
	}
}

// installed provides a machine that has changed its system, with its journal and without.
func installed(m *machine) {
	m.notes["a pivot before"] = func() { m.mustRun("pivot rebase -r registry.example/os:stable") }
	m.notes["the machine as it was installed"] = func() { m.mustRun("rm -rf /var/lib/pivot") }
}

// registries provides the situations of docs/registries.md: mirrors, signatures, media.
func registries(m *machine) {
	const mirrored = "[[registry]]\nlocation = \"registry.example/os\"\n[[registry.mirror]]\nlocation = \"mirror.example:5000/os\"\n"
	proxied(m)
	m.notes["a mirror"] = func() { m.write("etc/containers/registries.conf", mirrored) }
	m.notes["the mirror is down and the registry wants a password"] = func() {
		m.must(m.mirror.SetDown(true))
		m.secrets(m.mirror)
	}
	m.notes["a policy that wants signatures"] = func() {
		m.must(m.mirror.SetDown(false))
		m.secrets(m.mirror, m.host.Registry)
		m.write("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"registry.example":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/etc/pki/os.gpg"}]}}}`)
	}
	m.notes["an imported image"] = func() {
		m.write("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
		m.mustRun("pivot image import registry.example/os:stable --repo /ostree/repo")
	}
	m.notes["a medium"] = func() {
		m.host.PutIntoNext(map[string]string{"usr/share/later": "later"})
		legacy, err := oscontainer.Legacy(m.host.Archive, m.host.Commit, "B.2", oscontainer.WithWorkDir(m.t.TempDir()))
		m.must(err)
		dir := m.t.TempDir()
		m.must(oscontainer.WriteLayout(dir, legacy))
		m.write("run/media/.keep", "")
		if out, err := exec.Command("tar", "-C", dir, "-cf", filepath.Join(m.RunDir, "media/os.tar"), ".").CombinedOutput(); err != nil {
			m.t.Fatalf("%v\n%s", err, out)
		}
	}
}
