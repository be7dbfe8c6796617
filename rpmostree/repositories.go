package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// repositoriesIn is the directory of the package repositories that rpm-ostree uses. It is the
// booted system's, not that of the new one.
const repositoriesIn = "/etc/yum.repos.d"

// checkRepositories returns an error if rpm-ostree must find packages by name without a repository: none of the
// machine's is enabled, and the request has no extensions image. It finds by name what it installs. For another image
// it finds by name all layered packages, even from its cache, and even what is then uninstalled, if both are not
// possible at once. Local packages need no repository. A package that only the new image has is not known yet.
func (e *RpmOstree) checkRepositories(ctx context.Context, plan pivot.Plan) error {
	if !plan.To().Packages.Source.IsZero() {
		return nil
	}
	names, what := namesOf(plan.Packages, pivot.PackageInstall), "are to be layered, and rpm-ostree takes them"
	if plan.Image.Changed {
		booted, err := e.Sysroot.Booted()
		if err != nil {
			return err
		}
		uninstalled, err := e.uninstalledAtOnce(ctx, plan)
		if err != nil {
			return err
		}
		names, what = without(booted.Origin.RequestedPackages(), uninstalled), "are layered on this system, and for another image rpm-ostree takes them anew"
	}
	if len(names) == 0 {
		return nil
	}
	enabled, err := e.hasRepository()
	if err != nil || enabled {
		return err
	}
	list := strings.Join(names, ", ")
	hint := giveRepository
	if plan.Image.Changed {
		hint += "; or do without the packages first, on the present image: rpm-ostree uninstall " + strings.Join(names, " ") + ", and reboot"
	}
	return fault.New(fault.Refused, "cannot change this system: the packages %s %s from a repository, but %s has none that is enabled, and no image of extensions is given", list, what, repositoriesIn).
		WithHint("%s", hint)
}

// uninstalledAtOnce returns the packages that are uninstalled along with the move to another image.
func (e *RpmOstree) uninstalledAtOnce(ctx context.Context, plan pivot.Plan) ([]string, error) {
	names := namesOf(plan.Packages, pivot.PackageUninstall)
	if len(names) == 0 || !daemonReachable(e.Sysroot.Root()) {
		return nil, nil
	}
	tool, err := e.queryTool(ctx, "rpm-ostree")
	if err != nil || tool.cannotAtOnce() != "" {
		return nil, err
	}
	return names, nil
}

const giveRepository = "give the image of extensions of the OS image's release (--extensions-image, or spec.baseOSExtensionsContainerImage), " +
	"or enable a repository with the packages in " + repositoriesIn

// hasRepository reports whether the machine has a repository of its own that is enabled.
func (e *RpmOstree) hasRepository() (bool, error) {
	files, err := filepath.Glob(filepath.Join(e.Sysroot.Root(), repositoriesIn, "*.repo"))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		if filepath.Base(file) == filepath.Base(repositoryFile) {
			continue // left by a run that was killed; the next one removes it
		}
		text, err := hostfiles.ReadDropIn(e.Sysroot.Root(), filepath.Join(repositoriesIn, filepath.Base(file)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a link to nowhere
		}
		if errors.Is(err, hostfiles.ErrNotRegular) {
			return false, fault.New(fault.Refused, "cannot read the package repositories in %s: %w", file, err).WithHint("put a regular file at %s, or remove it", file)
		}
		if err != nil {
			return false, fmt.Errorf("cannot read the machine's package repositories: %w", err)
		}
		if enablesRepository(string(text)) {
			return true, nil
		}
	}
	return false, nil
}

// enablesRepository reports whether a .repo file has a section of an enabled repository. libdnf
// reads it (dnf-repo-loader.cpp, OptionBool.cpp): a section is enabled unless it says otherwise,
// and the last value counts.
func enablesRepository(text string) bool {
	section, enabled := "[main]", false // so far; [main] is no repository
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			if enabled {
				return true
			}
			section, enabled = line, line != "[main]"
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "enabled" && section != "[main]" {
			enabled = slices.Contains([]string{"1", "yes", "true", "on"}, strings.ToLower(strings.TrimSpace(value)))
		}
	}
	return enabled
}
