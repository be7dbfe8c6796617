package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
)

// After libostree has merged an /etc, it refreshes the SELinux policy in it, in case the
// administrator has changed modules (sysroot_finalize_selinux_policy in
// ostree-sysroot-deploy.c, since 2022.3). If there is an /etc/selinux/config, whatever it says,
// libostree runs the new system's semodule in the running system's bubblewrap. If a program for
// that is missing, libostree fails at the commit.

// sandbox is bubblewrap, at the only path that libostree uses.
const sandbox = "/usr/bin/bwrap"

// checkSandbox returns an error if the refresh will lack its sandbox, as far as this is known without the next system.
// It assumes that this has SELinux if the running system has.
func (e *Ostree) checkSandbox(ctx context.Context) error {
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	refreshes, err := e.refreshes(ctx, sepolicy.In(filepath.Join(booted.Path, "etc/selinux")))
	if err != nil || !refreshes {
		return err
	}
	return e.findSandbox()
}

// findSandbox returns an error if the running system has no sandbox.
func (e *Ostree) findSandbox() error {
	_, err := os.Lstat(filepath.Join(e.Sysroot.Root(), sandbox)) // do not follow a link outside of the system's root
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fault.New(fault.Refused, "cannot make a deployment with SELinux: libostree runs the new system's semodule in bubblewrap, and the running system has no %s", sandbox).
		WithHint("add the package bubblewrap to the image that the machine boots first; if the new system is not to have SELinux, remove /etc/selinux/config")
}

// refreshes reports whether libostree will refresh the policy of a deployment with the SELinux
// configuration next.
func (e *Ostree) refreshes(ctx context.Context, next sepolicy.Files) (bool, error) {
	switch _, err := next("config"); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot read SELinux's configuration: %w", err)
	}
	tool, err := e.queryTool(ctx, "ostree")
	return err == nil && tool.since(2022, 3) && tool.has("selinux"), err
}

// checkRefresh returns an error if libostree could not refresh the policy of a deployment of commit.
func (e *Ostree) checkRefresh(ctx context.Context, booted ostree.Deployment, commit ostree.Checksum) error {
	next, err := e.nextSELinux(booted, commit)
	if err != nil {
		return err
	}
	if refreshes, err := e.refreshes(ctx, next); err != nil || !refreshes {
		return err
	}
	if err := e.findSandbox(); err != nil {
		return err
	}
	repo, err := ostree.OpenRepo(e.Sysroot.RepoPath())
	if err != nil {
		return err
	}
	needed, err := refreshPrograms(repo, commit, next)
	if err != nil {
		return err
	}
	var lacking []string
	for _, program := range needed {
		has, err := hasProgram(repo, commit, program)
		if err != nil {
			return err
		}
		if !has {
			lacking = append(lacking, program)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fault.New(fault.Refused, "cannot make a deployment of %s: the new system has no %s, with which libostree refreshes its SELinux policy", commit, strings.Join(lacking, ", ")).
		WithHint("add the package policycoreutils to the image, or remove its /etc/selinux/config if it is not to have SELinux")
}

// refreshPrograms returns the programs of the new system that a refresh runs: semodule and, if there are modules, those
// that check and compile file contexts (semanage_validate_and_compile_fcontexts in libsemanage).
func refreshPrograms(repo *ostree.Repo, commit ostree.Checksum, next sepolicy.Files) ([]string, error) {
	config, err := next.Config()
	if err != nil {
		return nil, err
	}
	modules, err := repo.HasPath(commit, path.Join("usr/etc/selinux", config.Policy, "active/modules"))
	if err != nil || !modules {
		return []string{"semodule"}, err
	}
	return []string{"semodule", "setfiles", "sefcontext_compile"}, nil
}

// hasProgram reports whether a commit has a program in /usr/sbin, or in /usr/bin, since /usr/sbin
// may be a link to that.
func hasProgram(repo *ostree.Repo, commit ostree.Checksum, program string) (bool, error) {
	for _, dir := range []string{"usr/sbin", "usr/bin"} {
		if has, err := repo.HasPath(commit, path.Join(dir, program)); err != nil || has {
			return has, err
		}
	}
	return false, nil
}
