package rpmostree

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// tool is the YAML output of "ostree --version" or "rpm-ostree --version".
type tool struct {
	version  string // YEAR.RELEASE, and possibly more
	year     int
	release  int
	features []string
}

var versionLine = regexp.MustCompile(`(?m)^\s*Version:\s*'?((\d+)\.(\d+)[^'\s]*)'?`)

// queryTool returns the version and features of a program of the host.
func (e *Ostree) queryTool(ctx context.Context, program string) (tool, error) {
	out, err := e.Run(ctx, program, "--version")
	if err != nil {
		return tool{}, fmt.Errorf("cannot tell the version of %s: %w", program, err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return tool{}, fault.New(fault.Refused, "cannot read the version of %s: it prints %q", program, out).WithHint("%s --version must print the version of the real program: is another one first in PATH?", program)
	}
	t := tool{version: m[1]}
	t.year, _ = strconv.Atoi(m[2]) // the expression matches only digits
	t.release, _ = strconv.Atoi(m[3])
	_, list, _ := strings.Cut(string(out), "Features:")
	for line := range strings.Lines(list) {
		if f, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			t.features = append(t.features, f)
		}
	}
	return t, nil
}

// since reports whether the tool's release is the given or a later one.
func (t tool) since(year, release int) bool {
	return t.year > year || t.year == year && t.release >= release
}

func (t tool) has(feature string) bool { return slices.Contains(t.features, feature) }

// cannotMove returns why this rpm-ostree cannot make a deployment of image to on a host with
// origin from; "" if it can.
func (t tool) cannotMove(from ostree.Origin, to pivot.Image) string {
	switch {
	case to.Native && !t.has("container"):
		return "knows no container images"
	case from.ContainerImageReference() != "" && !t.since(2022, 10): // rpm-ostree commit a4c60bd7
		return "cannot leave a container image for a commit"
	}
	return ""
}
