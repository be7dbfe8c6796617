// Command installyaml writes what a cluster needs of pivot from deploy/, with images by their digests: install.yaml, and
// webhooks.yaml and server.yaml, which are optional. A Helm chart has all of them.
//
//	installyaml -agent registry.example/pivot-agent@sha256:… -fleet registry.example/pivot-fleet@sha256:… -version 1.4.0 -out bin
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	var o options
	flag.StringVar(&o.agent, "agent", "", "`IMAGE` of the agents, with its digest")
	flag.StringVar(&o.fleet, "fleet", "", "`IMAGE` of the controllers, with its digest")
	flag.StringVar(&o.version, "version", "0.0.0", "`VERSION` of the chart")
	flag.StringVar(&o.out, "out", "bin", "`DIRECTORY` of the result")
	flag.StringVar(&o.source, "source", ".", "`DIRECTORY` of the checkout")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "installyaml:", err)
		os.Exit(1)
	}
}

type options struct{ agent, fleet, version, out, source string }

// part is a directory of deploy/ with a kustomization, or some of its files.
type part struct {
	dir   string
	files []string // instead of those of the kustomization
	when  string   // the chart's condition for it; "": always
	in    string   // the file that has it, beside the chart; "": none
}

// parts are what a cluster can have. What is optional is in the fleet's kustomization, too.
func parts() []part {
	const install = "install.yaml"
	return []part{
		{dir: "base", in: install},
		{dir: "host", in: install},
		{dir: "pod", when: `eq .Values.agents "pods"`, in: install},
		{dir: "fleet", files: []string{"controller.yaml", "rbac-render.yaml", "rbac-rollout.yaml", "rbac-follow.yaml", "rbac-readers.yaml", "rbac-admission.yaml", "rbac-users.yaml", "policies.yaml"}, in: install},
		{dir: "fleet", files: []string{"webhooks.yaml"}, when: ".Values.webhooks", in: "webhooks.yaml"},
		{dir: "fleet", files: []string{"rbac-server.yaml", "server.yaml"}, when: ".Values.server", in: "server.yaml"},
	}
}

func (o options) run() error {
	for name, image := range map[string]string{"-agent": o.agent, "-fleet": o.fleet} {
		if !regexp.MustCompile(`^[^/@ ]+(/[^/@ ]+)+@sha256:[0-9a-f]{64}$`).MatchString(image) {
			return fmt.Errorf("cannot use %s %q: it is not HOST/NAME@sha256:DIGEST", name, image)
		}
	}
	whole, chart := map[string]string{}, map[string]string{
		"Chart.yaml":  fmt.Sprintf("apiVersion: v2\nname: pivot\ndescription: Maintains the machines of a cluster\ntype: application\nversion: %q\nkubeVersion: \">=1.32.0-0\"\n", semver(o.version)),
		"values.yaml": values(o.agent, o.fleet),
	}
	for _, p := range parts() {
		files, err := o.filesOf(p)
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(o.source, "deploy", p.dir, file))
			if err != nil {
				return err
			}
			if strings.Contains(string(text), "{{") {
				return fmt.Errorf("cannot make a template of deploy/%s/%s: it has {{", p.dir, file)
			}
			if p.in != "" {
				whole[p.in] += "---\n" + images(string(text), o.agent, o.fleet)
			}
			name := "templates/" + p.dir + "-" + strings.ReplaceAll(file, "/", "-")
			chart[name] = templated(p, images(string(text), "{{ .Values.images.agent }}", "{{ .Values.images.fleet }}"))
		}
	}
	failed := os.RemoveAll(filepath.Join(o.out, "chart")) // Helm would apply a template of another version, too
	for name, text := range whole {
		failed = errors.Join(failed, write(filepath.Join(o.out, name), text))
	}
	for name, text := range chart {
		failed = errors.Join(failed, write(filepath.Join(o.out, "chart", name), text))
	}
	return failed
}

// filesOf returns the files of a part, in the order in which they are applied. Another part in its kustomization is not in it.
func (o options) filesOf(p part) ([]string, error) {
	if p.files != nil {
		return p.files, nil
	}
	text, err := os.ReadFile(filepath.Join(o.source, "deploy", p.dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var k struct{ Resources []string }
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("cannot read the kustomization of deploy/%s: %w", p.dir, err)
	}
	return slices.DeleteFunc(k.Resources, func(name string) bool { return filepath.Ext(name) != ".yaml" }), nil
}

// images names the images of the programs.
func images(text, agent, fleet string) string {
	for name, image := range map[string]string{"pivot-agent": agent, "pivot-fleet": fleet} {
		text = regexp.MustCompile(`(?m)^( +image:) `+name+`$`).ReplaceAllString(text, "${1} "+strings.ReplaceAll(image, "$", "$$"))
	}
	return text
}

// templated returns a file as a template of Helm. Schemas stay when the chart is removed, with all objects of their kinds.
func templated(p part, text string) string {
	text = regexp.MustCompile(`(?m)^kind: CustomResourceDefinition\nmetadata:\n`).ReplaceAllString(text, "${0}  annotations: {helm.sh/resource-policy: keep}\n")
	if p.when == "" {
		return text
	}
	return "{{- if " + p.when + " }}\n" + text + "{{- end }}\n"
}

func values(agent, fleet string) string {
	return `images:
  agent: ` + agent + `
  fleet: ` + fleet + `
# How the agents run: pods, or units of the hosts.
agents: pods
# The admission webhooks. The policies of the API server are always there.
webhooks: false
# The Ignition server. It waits for a certificate.
server: false
`
}

// semver returns a version as Helm accepts it.
func semver(version string) string {
	version, extra, _ := strings.Cut(version, "+")
	version, pre, _ := strings.Cut(version, "~")
	for strings.Count(version, ".") < 2 {
		version += ".0"
	}
	if pre != "" {
		version += "-" + pre
	}
	if extra != "" {
		version += "+" + extra
	}
	return version
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
