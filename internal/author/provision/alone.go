package provision

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
	systemdunits "machine-pivot/systemd-units"
)

// Alone asks for a machine without a cluster. It has no role, and nobody writes a MachineConfig.
type Alone struct {
	Image     string
	Arguments []string        // kernel arguments
	Files     []ignition.File // that Ignition writes
}

// Config returns the Ignition config, as the function Config does for a node. Rules judge the MachineConfig in it.
func (a Alone) Config(rules authored.Rules, version string, more ...ignition.Config) ([]byte, problem.Report) {
	m, report := a.machineConfig(rules)
	if report.Failed() {
		return nil, report
	}
	raw, problems := render(m, version, more)
	return raw, append(report, problems...)
}

func (a Alone) machineConfig(rules authored.Rules) (*authored.MachineConfig, problem.Report) {
	config := ignition.Empty()
	config.Ignition.Version = ignition.Version
	config.Storage.Files = a.Files
	all, report := authored.DecodeMade(map[string]any{
		"apiVersion": machineconfig.APIVersion, "kind": machineconfig.Kind, "metadata": map[string]any{"name": "alone"},
		"spec": map[string]any{"osImageURL": a.Image, "kernelArguments": a.Arguments, "config": json.RawMessage(ignition.Marshal(config))},
	}, rules)
	report = slices.DeleteFunc(report, func(p problem.Problem) bool { return strings.HasPrefix(p.Path, "$.metadata") }) // a role is missing on purpose
	if report.Failed() {
		return nil, report
	}
	return all[0], report
}

// hashed matches a hash as Ignition takes it.
var hashed = regexp.MustCompile(`^(sha256-[0-9a-f]{64}|sha512-[0-9a-f]{128})$`)

const hashHint = "with a hash, a machine runs no other program than yours: sha256-$(sha256sum pivot | cut -d ' ' -f 1)"

// Fetch returns a config with the units that a machine without a cluster needs. By it, the machine fetches the program. The
// hash is that of the program: sha256-HEX or sha512-HEX.
func Fetch(from, hash string) (ignition.Config, error) {
	at, err := url.Parse(from)
	if err == nil && (at.Host == "" || !slices.Contains([]string{"http", "https", "tftp", "s3", "gs"}, at.Scheme)) {
		err = fmt.Errorf("%q is no address that Ignition fetches", from)
	}
	if err != nil {
		return ignition.Config{}, fault.New(fault.Usage, "cannot use --pivot-url: %w", err).WithHint("an example: https://HOST/PATH")
	}
	if hash == "" {
		return ignition.Config{}, fault.New(fault.Usage, "--pivot-url has no --pivot-hash").WithHint(hashHint)
	}
	if !hashed.MatchString(hash) {
		return ignition.Config{}, fault.New(fault.Usage, "cannot use --pivot-hash: %q is neither sha256-HEX nor sha512-HEX", hash).WithHint(hashHint)
	}
	config := ignition.Empty()
	file := ignition.NewFile(embeddedPath, 0o755, nil)
	file.Contents = ignition.Resource{Source: &from}
	file.Contents.Verification.Hash = &hash
	config.Storage.Files = append(config.Storage.Files, file)
	all, err := units()
	if err != nil {
		return ignition.Config{}, fault.New(fault.Internal, "cannot add the units: %w", err)
	}
	config.Systemd.Units = slices.DeleteFunc(all, func(u ignition.Unit) bool { return !slices.Contains(unitsAlone(), u.Name) })
	for i, u := range config.Systemd.Units {
		config.Systemd.Units[i].Contents = new(withoutComments(*u.Contents))
	}
	return config, nil
}

// unitsAlone returns the units of a machine without a cluster.
func unitsAlone() []string {
	return []string{systemdunits.FirstBoot, systemdunits.Live, systemdunits.Project, systemdunits.Slot, systemdunits.Trial}
}

// withoutComments returns a unit without comments and empty lines: user data may have a few kB.
func withoutComments(unit string) string {
	lines := slices.DeleteFunc(strings.SplitAfter(unit, "\n"), func(line string) bool {
		text := strings.TrimSpace(line)
		return text == "" || text[0] == '#' || text[0] == ';'
	})
	return strings.Join(lines, "")
}

// MaxAlone limits the config of a machine without a cluster, in bytes: EC2 takes 16 KiB of user data, others more.
const MaxAlone = 16 << 10

// NewFile returns a file that Ignition writes, at an absolute path.
func NewFile(name string, content []byte) (ignition.File, error) {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return ignition.File{}, fault.New(fault.Usage, "cannot use --file: %q is no absolute path", name).WithHint("an example: --file /etc/motd=motd.txt")
	}
	if len(content) > MaxAlone {
		return ignition.File{}, fault.New(fault.BadInput, "cannot use --file %s: it has %d bytes, and user data may have %d", name, len(content), MaxAlone).
			WithHint("put it into the image, or have Ignition fetch it, by contents.source in the file of --butane")
	}
	return ignition.NewFile(name, 0o644, content), nil
}
