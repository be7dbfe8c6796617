package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// RpmOstreePath is the program that changes packages, on hosts that have it.
const RpmOstreePath = "/usr/bin/rpm-ostree"

// OnTop is what a deployment's origin asks of rpm-ostree on top of the image. Which packages
// are installed it does not say.
func OnTop(d ostree.Deployment) pivot.SystemPackages {
	return pivot.SystemPackages{Layered: d.Origin.LayeredPackages(), Removed: d.Origin.RemovedPackages()}
}

// packages are what a deployment has of the packages that are asked about. On a host
// without rpm-ostree no package is known to be installed: none could be changed.
func (h *Host) packages(ctx context.Context, d ostree.Deployment, asked pivot.Packages) (pivot.SystemPackages, error) {
	have, err := PackagesOf(ctx, h.Root, h.Run, d, asked)
	if errors.Is(err, ErrNotInstalled) {
		err = nil
	}
	return have, err
}

// PackagesOf are the packages of a deployment of the host whose root directory and way to run
// programs are given. Which are installed is looked up only if something is asked for that
// depends on it.
func PackagesOf(ctx context.Context, root string, run Runner, d ostree.Deployment, asked pivot.Packages) (have pivot.SystemPackages, err error) {
	have = OnTop(d)
	if len(asked.Asked()) > 0 {
		have.Installed, err = installedPackages(ctx, WithTmp(root, run), d.Checksum.String())
	}
	return have, err
}

// Runner runs a program of the host and returns what it printed on stdout.
type Runner func(ctx context.Context, argv ...string) ([]byte, error)

// WithTmp is run with an empty /tmp of the program's own: the clients of rpm-ostree want to
// write there, and on many hosts it is /sysroot/tmp and read-only. root is the host's.
func WithTmp(root string, run Runner) Runner {
	return func(ctx context.Context, argv ...string) (out []byte, err error) {
		err = hostfiles.WithTmpfs(filepath.Join(root, "tmp"), func() (err error) {
			out, err = run(ctx, argv...)
			return err
		})
		return out, err
	}
}

// installedPackages are the names of the packages of a commit in the host's repository, by
// "rpm-ostree db list", which reads the commit itself and asks no daemon, but needs a /tmp.
func installedPackages(ctx context.Context, run Runner, commit string) ([]string, error) {
	out, err := run(ctx, "rpm-ostree", "db", "list", commit)
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of ostree commit %s: %w", commit, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if nevra, ok := strings.CutPrefix(line, " "); ok {
			names = append(names, ostree.PackageName(strings.TrimSpace(nevra)))
		}
	}
	return names, nil
}
