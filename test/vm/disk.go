package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DiskSpec is what a disk has beside the deployed system.
type DiskSpec struct {
	Deploy     string     // "A" (also "") or "B"
	KernelArgs []string   // beside root= and the console
	Files      []TreeFile // below /etc or /var
	Origin     []byte     // of the deployment; nil: ostree's own
	RepoConfig []string   // settings of the repository, as "sysroot.readonly=true"
	SizeMiB    int        // of the root; 0: 1536
	Layout     Layout
}

// Where a machine's disk has its deployments and its /var. StateRoot is what
// ostree calls the directory of an OS.
const (
	osName    = "guest"
	StateRoot = "/ostree/deploy/" + osName
	VarDir    = StateRoot + "/var"
)

// emulated are the kernel arguments of a guest whose processors are emulated, on a host
// that may be busy. They are the disk's, so that a kernel that kexec starts has them too.
func emulated() []string {
	return []string{
		// Else the kernel counts timer interrupts early on, finds too few and panics
		// ("IO-APIC + timer doesn't work!").
		"no_timer_check",
		// Else it finds that the counters of two emulated processors differ and takes the time
		// from the HPET, whose registers are emulated under the lock of all devices. On a busy
		// host a tick can then take longer than it is until the next: nothing else goes on.
		"tsc=reliable",
		// Else Linux copies and clears by string instructions of eight bytes: see processor.
		"clearcpuid=rep_good",
	}
}

const defaultSizeMiB = 1536

// Disk makes a disk image with one deployment. It is sparse.
func (g *Guest) Disk(ctx context.Context, dst string, d DiskSpec) (err error) {
	sysroot := dst + ".sysroot"
	if err := os.Mkdir(sysroot, 0o755); err != nil {
		return fmt.Errorf("cannot make disk: %w", err)
	}
	defer func() { err = errors.Join(err, removeSysroot(sysroot)) }()
	d.Files = append(d.Layout.files(), d.Files...)
	if err := g.fill(ctx, sysroot, d); err != nil {
		return fmt.Errorf("cannot make disk %s: %w", dst, err)
	}
	size := d.SizeMiB
	if size == 0 {
		size = defaultSizeMiB
	}
	return d.Layout.makeDisk(ctx, dst, sysroot, size)
}

// fill makes a sysroot with the wanted version deployed and the files in place.
func (g *Guest) fill(ctx context.Context, sysroot string, d DiskSpec) error {
	deployment, err := g.deploy(ctx, sysroot, d)
	if err != nil {
		return err
	}
	if d.Origin != nil {
		if err := os.WriteFile(deployment+".origin", d.Origin, 0o644); err != nil {
			return err
		}
	}
	for _, f := range d.Files {
		root := deployment
		switch {
		case strings.HasPrefix(f.Path, "/var/"):
			root = filepath.Join(sysroot, StateRoot)
		case !strings.HasPrefix(f.Path, "/etc/"):
			return fmt.Errorf("cannot write %s: only /etc and /var are mutable", f.Path)
		}
		if err := writeTree(root, []TreeFile{f}); err != nil {
			return err
		}
	}
	if g.selinux {
		return label(ctx, sysroot, deployment)
	}
	return nil
}

// deploy makes a sysroot with one deployment, whose directory it returns.
func (g *Guest) deploy(ctx context.Context, sysroot string, d DiskSpec) (string, error) {
	commit, source := g.CommitA, g.repoA
	if d.Deploy == "B" {
		commit, source = g.CommitB, g.repoB
	}
	repo := "--repo=" + filepath.Join(sysroot, "ostree/repo")
	deploy := []string{"ostree", "admin", "deploy", "--sysroot=" + sysroot, "--os=" + osName,
		"--karg=root=LABEL=root", "--karg=rw", "--karg=console=ttyS0"}
	for _, arg := range append(emulated(), d.KernelArgs...) {
		deploy = append(deploy, "--karg-append="+arg)
	}
	commands := [][]string{
		{"ostree", "admin", "init-fs", sysroot},
		{"ostree", "admin", "os-init", "--sysroot=" + sysroot, osName},
		// This package is the boot loader.
		{"ostree", "config", repo, "set", "sysroot.bootloader", "none"},
		{"ostree", "pull-local", "--disable-fsync", repo, source, commit},
		append(deploy, commit),
	}
	for _, setting := range d.RepoConfig {
		key, value, _ := strings.Cut(setting, "=")
		commands = append(commands, []string{"ostree", "config", repo, "set", key, value})
	}
	for _, argv := range commands {
		if _, err := run(ctx, argv...); err != nil {
			return "", err
		}
	}
	deployment := filepath.Join(sysroot, StateRoot, "deploy", commit+".0")
	return deployment, mutable(ctx, deployment)
}

// mutable takes the immutable flag, which ostree sets, from a deployment.
func mutable(ctx context.Context, deployment string) error {
	_, err := run(ctx, "chattr", "-i", deployment)
	return err
}

// removeSysroot removes a sysroot, also one that was left in the middle.
func removeSysroot(sysroot string) error {
	deployments, err := filepath.Glob(filepath.Join(sysroot, StateRoot, "deploy", "*.[0-9]"))
	if err != nil {
		return err
	}
	for _, d := range deployments {
		// Not the caller's context: cleaning up also follows a cancellation.
		if err := mutable(context.Background(), d); err != nil {
			return err
		}
	}
	return os.RemoveAll(sysroot)
}
