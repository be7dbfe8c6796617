package firstboot

import (
	"os"
	"slices"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/selinux"
	"machine-pivot/pivot"
)

// stubInfo is the EFI variable that systemd-stub sets (systemd-stub(7)): it is
// there if the running kernel came out of a unified kernel image.
const stubInfo = "/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// checkUnified is an error if a plan's kernel arguments could have no effect.
func (m *Machine) checkUnified(plan pivot.Plan) error {
	if _, err := os.Stat(m.Host.Path(stubInfo)); plan.Kargs.Changed && err == nil {
		return fault.New(fault.Refused, "cannot change the kernel arguments: this machine was started from a unified kernel image, whose arguments are built in").
			WithHint("build the arguments into the image, and ask for none")
	}
	return nil
}

// noteLabels says so where an image with a newer SELinux policy than the running one
// could not be stored. Whether this image has one is only known from its content,
// and then refused by name.
func (m *Machine) noteLabels() {
	kernel := selinux.Running(m.Host.Root)
	if !kernel.Loaded() {
		return
	}
	if may, err := kernel.StoresUnknown(); err == nil && !may {
		m.Progress.Note("SELinux does not let this program store labels that the running policy does not know: an image whose policy has new types will be refused")
	}
}

// spaceInBoot checks, before a deployment is made of commit, that its kernel and
// initramfs fit into /boot. Those of a deployment are there already.
func (m *Machine) spaceInBoot(repo *ostree.Repo, commit string) error {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return err
	}
	files, err := repo.BootFiles(c)
	if err != nil {
		return err
	}
	deployed, err := m.Host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	var need int64
	for _, f := range files {
		need += f.Size
	}
	for _, d := range deployed {
		if have, err := repo.BootFiles(d.Checksum); err == nil && slices.Equal(have, files) {
			return nil
		}
	}
	free, err := m.Host.Free(m.Host.Path("/boot"))
	if err != nil || free >= need {
		return err
	}
	return fault.New(fault.CannotWrite, "cannot deploy commit %s: its kernel and initramfs have %d bytes, /boot has %d bytes free", commit, need, free).
		WithHint("remove a deployment that is no longer wanted (ostree admin undeploy, or rpm-ostree cleanup), and files of others in /boot")
}

// checkFIPS holds what is asked for against the running kernel.
func (m *Machine) checkFIPS(d *encapsulated.Desired) error {
	fips, err := m.Host.FIPS()
	if err != nil || fips == d.FIPS {
		return err
	}
	return fault.New(fault.Refused, "cannot pivot this machine: spec.fips is %v, but the kernel runs with FIPS mode %s",
		d.FIPS, map[bool]string{true: "on", false: "off"}[fips]).
		WithHint("FIPS mode is chosen when a machine is installed and cannot be changed later: install it anew, or correct spec.fips")
}
