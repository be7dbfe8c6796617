package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DiskSpec describes a disk to make.
type DiskSpec struct {
	Deploy     string     // the version to deploy: "A" (also "") or "B"
	KernelArgs []string   // in addition to root=, the console and those of emulated
	Files      []TreeFile // below /etc, /var or /boot
	Origin     []byte     // the deployment's origin file; nil: the one that ostree writes
	RepoConfig []string   // settings of the repository, such as "sysroot.readonly=true"
	SizeMiB    int        // of the root file system; 0: 1536
	Layout     Layout
	// OwnOstree deploys with the guest's own ostree, which may be newer than this host's and know more, such as
	// composefs or boot entries that count boots.
	OwnOstree bool
}

// Paths of the stateroot and of its /var on a machine's disk.
const (
	osName    = "guest"
	StateRoot = "/ostree/deploy/" + osName
	VarDir    = StateRoot + "/var"
)

// emulated returns the kernel arguments for a guest with emulated processors on a host that may
// be busy. They are in the boot entries on the disk, so that a kernel started by kexec has them
// too.
func emulated() []string {
	args := []string{
		// Otherwise the kernel counts timer interrupts early on, finds too few and panics
		// ("IO-APIC + timer doesn't work!").
		"no_timer_check",
		// Otherwise the kernel finds that the time stamp counters of two emulated processors differ, and uses the HPET, which
		// QEMU emulates under its device lock. On a busy host a tick can then take longer than the tick interval, and nothing
		// else runs.
		"tsc=reliable",
		// Otherwise Linux copies and clears memory with string instructions: see processor.
		"clearcpuid=rep_good",
	}
	// Otherwise the kernel measures the frequency of the time stamp counter. On a busy host, what it measures
	// can be wrong by a factor of ten, and all timeouts of the guest are that much shorter.
	if cpus, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		args = append(args, counterFrequency(string(cpus))...)
	}
	return args
}

// counterFrequency returns the kernel argument with the frequency of the time stamp counter, which an emulated
// processor has from the host. Only on a host that is a virtual machine itself is it what /proc/cpuinfo says;
// elsewhere that is how fast a core runs at the moment.
func counterFrequency(cpuinfo string) []string {
	virtual := regexp.MustCompile(`(?m)^flags\s*:.* constant_tsc .*\bhypervisor\b`)
	m := regexp.MustCompile(`(?m)^cpu MHz\s*: (\d+)\.(\d{3})$`).FindStringSubmatch(cpuinfo)
	if m == nil || !virtual.MatchString(cpuinfo) {
		return nil
	}
	return []string{"tsc_early_khz=" + m[1] + m[2]}
}

const defaultSizeMiB = 1536

// Disk makes a sparse disk image with one deployment at dst.
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

// fill makes a sysroot with the deployment and the files that d describes.
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
		case strings.HasPrefix(f.Path, "/boot/"):
			root = sysroot
		case !strings.HasPrefix(f.Path, "/etc/"):
			return fmt.Errorf("cannot write %s: only /etc, /var and /boot are mutable", f.Path)
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

// deployScript is not part of the recipe, because it works on disks.
//
//go:embed deploy.sh
var deployScript string

// deploy makes a sysroot with one deployment and returns the deployment's directory.
func (g *Guest) deploy(ctx context.Context, sysroot string, d DiskSpec) (string, error) {
	commit, source := g.CommitA, g.repoA
	if d.Deploy == "B" {
		commit, source = g.CommitB, g.repoB
	}
	repo := "--repo=" + filepath.Join(sysroot, "ostree/repo")
	arguments := []string{"--os=" + osName, "--karg=root=LABEL=root", "--karg=rw", "--karg=console=ttyS0"}
	for _, arg := range append(emulated(), d.KernelArgs...) {
		arguments = append(arguments, "--karg-append="+arg)
	}
	arguments = append(arguments, commit)
	commands := [][]string{
		{"ostree", "admin", "init-fs", sysroot},
		{"ostree", "admin", "os-init", "--sysroot=" + sysroot, osName},
		// This package acts as the boot loader.
		{"ostree", "config", repo, "set", "sysroot.bootloader", "none"},
		{"ostree", "pull-local", "--disable-fsync", repo, source, commit},
	}
	for _, setting := range d.RepoConfig {
		key, value, _ := strings.Cut(setting, "=")
		commands = append(commands, []string{"ostree", "config", repo, "set", key, value})
	}
	if !d.OwnOstree {
		commands = append(commands, append([]string{"ostree", "admin", "deploy", "--sysroot=" + sysroot}, arguments...))
	}
	for _, argv := range commands {
		if _, err := run(ctx, argv...); err != nil {
			return "", err
		}
	}
	if d.OwnOstree {
		if err := runPrivate(ctx, append([]string{"bash", "-c", deployScript, "deploy.sh", sysroot, commit}, arguments...)...); err != nil {
			return "", err
		}
	}
	deployment := filepath.Join(sysroot, StateRoot, "deploy", commit+".0")
	return deployment, mutable(ctx, deployment)
}

// mutable removes the immutable attribute, which ostree sets, from a deployment.
func mutable(ctx context.Context, deployment string) error {
	_, err := run(ctx, "chattr", "-i", deployment)
	return err
}

// removeSysroot removes a sysroot, even an incomplete one.
func removeSysroot(sysroot string) error {
	deployments, err := filepath.Glob(filepath.Join(sysroot, StateRoot, "deploy", "*.[0-9]"))
	if err != nil {
		return err
	}
	for _, d := range deployments {
		// Not the caller's context, which may be cancelled: the cleanup must happen anyway.
		if err := mutable(context.Background(), d); err != nil {
			return err
		}
	}
	return os.RemoveAll(sysroot)
}
