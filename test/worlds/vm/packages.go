package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
)

// packagesScript is not part of the recipe, because no base is made from it.
//
//go:embed packages.sh
var packagesScript string

// keepPackages is how many sets of packages the cache keeps.
const keepPackages = 2

// Packages returns a directory on the host with the files of Debian packages, unpacked and not
// configured, of the release that a spec describes, with what they depend on. modules are files of
// the kernel package that the guest's tree lacks, by their path below its directory, such as
// "kernel/drivers/net/veth.ko.xz"; they are in /modules, without directories. It builds what is not
// cached.
func (b *Builder) Packages(ctx context.Context, spec GuestSpec, packages, modules []string) (dir string, err error) {
	err = b.locked(ctx, func(c cache) error {
		rootfs, err := c.rootfs(ctx, spec.suiteA())
		if err != nil {
			return err
		}
		sum := sha256.Sum256([]byte(fmt.Sprint(packagesScript, filepath.Base(filepath.Dir(rootfs)), packages, modules)))
		dir, err = c.entry("packages-"+spec.suiteA()+"-"+shortSum(sum[:]), "Debian packages of the guest: "+strings.Join(packages, ", "), func(dir string) error {
			argv := append([]string{"bash", "-c", packagesScript, "packages.sh", dir, rootfs, spec.suiteA(), strings.Join(packages, ",")}, modules...)
			return runPrivate(ctx, argv...)
		})
		if err != nil {
			return err
		}
		_, err = c.prune("packages-", keepPackages)
		return err
	})
	return dir, err
}
