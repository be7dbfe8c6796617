package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"

	"machine-pivot/internal/ostree"
)

// InstallByBootc makes the host one that "bootc install to-filesystem" has just installed from an image by its tag. It
// has the stateroot "default", boot entries with paths below /boot, a read-only sysroot, a storage for application
// images, and no Ignition. follows is the tag in the origin. Nothing of the former system stays.
func (h *Host) InstallByBootc(follows string) {
	h.t.Helper()
	h.RepoConfig("sysroot.bootprefix", "true")
	h.prefixed = true
	h.RepoConfig("sysroot.readonly", "true")
	h.must(os.MkdirAll(filepath.Join(h.physical, "ostree/bootc/storage"), 0o755))
	h.install("default", "[origin]\ncontainer-image-reference=ostree-unverified-registry:"+follows+"\n", "root=UUID=6d1a", "rw")
	h.must(h.Undeploy(1))
	h.must(mutableAll(h.physical))
	h.must(os.RemoveAll(filepath.Join(h.physical, "ostree/deploy", firstStateroot)))
	h.Boot()
	h.trust()
}

// Reset makes the host one after "bootc install reset": another stateroot has a new deployment of the running
// commit, with root= as its only kernel argument, and an empty /var. The former deployment stays.
func (h *Host) Reset(stateroot string) {
	h.t.Helper()
	booted, err := h.Sysroot().Booted()
	h.must(err)
	h.install(stateroot, string(booted.Origin.Bytes()), "root=UUID=6d1a")
	h.Boot()
	h.trust()
}

// install deploys the running commit in a new stateroot, as the next boot, and leaves /etc behind.
func (h *Host) install(stateroot, origin string, arguments ...string) {
	h.t.Helper()
	booted, err := h.Sysroot().Booted()
	h.must(err)
	file := filepath.Join(h.t.TempDir(), "origin")
	h.must(os.WriteFile(file, []byte(origin), 0o644))
	h.run("ostree", "admin", "os-init", "--sysroot="+h.physical, stateroot)
	argv := []string{"ostree", "admin", "deploy", "--sysroot=" + h.physical, "--os=" + stateroot, "--no-merge", "--retain", "--origin-file=" + file}
	for _, argument := range arguments {
		argv = append(argv, "--karg-append="+argument)
	}
	h.run(append(argv, booted.Checksum.String())...)
	h.must(h.prefixEntries())
	h.stateroot = stateroot
}

// prefixEntries gives boot entries the paths that they have by sysroot.bootprefix, which older releases of libostree
// do not know.
func (h *Host) prefixEntries() error {
	if !h.prefixed {
		return nil
	}
	entries, err := filepath.Glob(filepath.Join(h.physical, "boot/loader/entries/*.conf"))
	for _, file := range entries {
		text, rerr := os.ReadFile(file)
		prefixed := regexp.MustCompile(`(?m)^(linux|initrd) /ostree/`).ReplaceAll(text, []byte("$1 /boot/ostree/"))
		err = errors.Join(err, rerr, os.WriteFile(file, prefixed, 0o644))
	}
	return err
}

// Stateroot returns the stateroot of a boot entry's deployment. 0 is the default.
func (h *Host) Stateroot(entry int) string {
	h.t.Helper()
	all, err := ostree.OpenSysroot(h.physical).Deployments()
	h.must(err)
	return all[entry].Stateroot
}
