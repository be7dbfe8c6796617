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

// OnTop returns the packages that a deployment's origin adds to and removes from the image. It
// does not say which packages are installed.
func OnTop(d ostree.Deployment) pivot.SystemPackages {
	return pivot.SystemPackages{Layered: d.Origin.LayeredPackages(), Removed: d.Origin.RemovedPackages()}
}

// packages returns the state of the requested packages in a deployment. Without rpm-ostree, no
// installed packages are known, and none can be changed.
func (h *Host) packages(ctx context.Context, d ostree.Deployment, asked pivot.Packages) (pivot.SystemPackages, error) {
	have, err := PackagesOf(ctx, h.Root, h.Run, d, asked)
	if errors.Is(err, ErrNotInstalled) {
		err = nil
	}
	return have, err
}

// PackagesOf returns the packages of a deployment on the host with the given root directory.
// run runs programs of the host. Installed packages are looked up only if a request depends on
// them.
func PackagesOf(ctx context.Context, root string, run Runner, d ostree.Deployment, asked pivot.Packages) (have pivot.SystemPackages, err error) {
	have = OnTop(d)
	if len(asked.Names(pivot.PackagePresent, pivot.PackageAbsent)) > 0 {
		have.Installed, err = installedPackages(ctx, WithTmp(root, run), d.Checksum.String())
	}
	return have, err
}

// Runner runs a program of the host and returns its stdout.
type Runner func(ctx context.Context, argv ...string) ([]byte, error)

// WithTmp wraps run to give the program a private empty /tmp: rpm-ostree's clients write there,
// but on many hosts it is /sysroot/tmp and read-only. root is the host's root directory.
func WithTmp(root string, run Runner) Runner {
	return func(ctx context.Context, argv ...string) (out []byte, err error) {
		err = hostfiles.WithTmpfs(filepath.Join(root, "tmp"), func() (err error) {
			out, err = run(ctx, argv...)
			return err
		})
		return out, err
	}
}

// installedPackages returns the names of the packages in a commit of the host's repository. It uses "rpm-ostree db
// list", which reads the commit without the daemon, but needs a /tmp. The running system's rpm may be too old for the
// commit's database, and the place of that varies.
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
