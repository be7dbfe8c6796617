package rehearsal

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/bootloader"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/secureboot"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

// judgeKernel returns what speaks against the way in which the new kernel will be started, and keeps whether the image's boot
// loader must be installed for it.
func (f *feature) judgeKernel(ctx context.Context, plan pivot.Plan, next, running ostree.Checksum, choice settings.BootLoader) (found []verdict.Finding) {
	before := plan.From().Packages
	firmware, unsure := secureboot.Read(f.m.Host.Path("/sys/firmware/efi"))
	found, f.installs = f.loader().Judge(ctx, bootloader.Change{
		Next: next, Running: running, Choice: choice, Firmware: firmware, Unsure: unsure,
		Layered: len(plan.Packages)+len(before.Layered)+len(before.Removed) > 0,
	})
	return found
}

func (f *feature) loader() bootloader.Loader {
	sysroot := f.m.Host.Sysroot()
	return bootloader.Loader{Self: f.m.Self, Repo: sysroot.RepoPath(), Boot: f.m.Host.Path("/boot"), Sysroot: sysroot.Physical()}
}

// install installs the boot loader of a plan's new system. Both systems start with it, so it stays if the commit fails.
func (f *feature) install(ctx context.Context, plan *pivot.Plan) error {
	next, err := ostree.ParseChecksum(plan.To().Image.Commit)
	if err != nil {
		return err
	}
	f.m.Progress.Begin(pivot.StepPrepare, "installing the image's boot loader")
	partitions, err := f.loader().Install(ctx, next)
	if err == nil {
		f.m.Progress.Note(fmt.Sprintf("the image's boot loader is installed on %s", strings.Join(partitions, ", ")))
	}
	return err
}
