package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed uefi.cfg
var uefiConfig string

// Debian packages that test/tools/deps.sh unpacks, and what an UEFI machine needs of them.
const (
	firmwareCode  = "ovmf/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
	enrolledVars  = "ovmf/usr/share/OVMF/OVMF_VARS_4M.ms.fd" // with the keys of Microsoft: Secure Boot is on
	signedShim    = "shim-signed/usr/lib/shim/shimx64.efi.signed"
	signedGRUB    = "grub-efi-amd64-signed/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
	unpackedBelow = "machine-pivot"
)

// MissingUEFI returns what this host lacks for SecureBoot; nothing if it can run.
func MissingUEFI() (missing []string) {
	for _, name := range []string{firmwareCode, enrolledVars, signedShim, signedGRUB} {
		if path, err := unpacked(name); err != nil {
			missing = append(missing, err.Error())
		} else if _, err := os.Stat(path); err != nil {
			missing = append(missing, path)
		}
	}
	return missing
}

func unpacked(name string) (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, unpackedBelow, name), err
}

// SecureBoot returns QEMU's arguments for a machine with UEFI firmware and Secure Boot, in which Microsoft's keys are
// enrolled. It starts Debian's signed shim, that Debian's signed GRUB, and that only a signed kernel. The files of an
// EFI system partition with them, for ESPDisk or InstallESP, and the firmware's variables are in dir, which must not
// exist. As in InstallStaticGRUB, GRUB executes StaticGRUB. Its blscfg takes the menu entries from a file that
// Machine.WriteGRUBMenu writes, because Debian's GRUB reads no BLS entries, and loads no unsigned module in a machine
// with Secure Boot. trust changes what the firmware trusts.
func SecureBoot(dir string, trust Trust) (arguments []string, err error) {
	esp, vars := filepath.Join(dir, "esp"), filepath.Join(dir, "vars.fd")
	code, err := unpacked(firmwareCode)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(esp, "EFI/BOOT"), 0o755), os.MkdirAll(filepath.Join(esp, "EFI/debian"), 0o755))
	}
	if err == nil {
		// Where GRUB's signed image looks for its configuration.
		err = os.WriteFile(filepath.Join(esp, "EFI/debian/grub.cfg"), []byte(uefiConfig), 0o644)
	}
	for to, from := range map[string]string{
		vars: enrolledVars, esp + "/EFI/BOOT/BOOTX64.EFI": signedShim, esp + "/EFI/BOOT/grubx64.efi": signedGRUB,
		esp + "/EFI/debian/shimx64.efi": signedShim, esp + "/EFI/debian/grubx64.efi": signedGRUB,
	} {
		if err == nil {
			err = copyUnpacked(to, from)
		}
	}
	if err == nil {
		err = change(vars, trust.apply)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make UEFI firmware: %w", err)
	}
	return []string{
		"-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on",
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + escape(code),
		"-drive", "if=pflash,unit=1,format=raw,file=" + escape(vars),
	}, nil
}

// ESPDisk returns QEMU's arguments for a disk with the files that SecureBoot has made in dir.
func ESPDisk(dir string) []string {
	return []string{
		"-drive", "if=none,id=esp,format=raw,read-only=on,file=fat:" + escape(filepath.Join(dir, "esp")),
		"-device", "virtio-blk-pci,drive=esp", // without bootindex: with it, the firmware would connect no other disk, and GRUB not see it
	}
}

// InstallESP writes the files that SecureBoot has made in dir to the EFI system partition of a powered-off machine.
func InstallESP(ctx context.Context, disk, dir string) error {
	esp, err := espOf(ctx, disk)
	if err != nil {
		return err
	}
	const sector = 512
	_, err = run(ctx, "mkfs.vfat", "-F", "16", "--offset", fmt.Sprint(esp.offset/sector), disk, fmt.Sprint(esp.size>>10))
	if err == nil {
		_, err = run(ctx, "mcopy", "-s", "-i", fmt.Sprintf("%s@@%d", disk, esp.offset), filepath.Join(dir, "esp/EFI"), "::")
	}
	return err
}

// MirrorDisk makes a second disk for a machine with an EFI system partition. It has one, too, with the files that SecureBoot
// has made in dir. Its other partition is empty, and has the size of /boot.
func MirrorDisk(ctx context.Context, file, dir string) error {
	all := Layout{SeparateBoot: true, ESP: true}.partitions(0)
	if _, err := partitioned(ctx, file, all[:2]); err != nil {
		return err
	}
	return InstallESP(ctx, file, dir)
}

// ESPFile returns a file of the EFI system partition of a powered-off machine's disk.
func ESPFile(ctx context.Context, disk, name string) ([]byte, error) {
	esp, err := espOf(ctx, disk)
	if err != nil {
		return nil, err
	}
	return run(ctx, "mcopy", "-n", "-i", fmt.Sprintf("%s@@%d", disk, esp.offset), "::"+name, "-")
}

func espOf(ctx context.Context, disk string) (partition, error) {
	parts, err := partitionsOf(ctx, disk)
	if err != nil {
		return partition{}, err
	}
	i := slices.IndexFunc(parts, func(p partition) bool { return p.name == espPartition })
	if i < 0 {
		return partition{}, fmt.Errorf("cannot use %s: it has no EFI system partition", disk)
	}
	return parts[i], nil
}

// ESP is the EFI system partition of a recorded boot.
type ESP struct {
	recording *Recording
	at        partition
}

// ESP returns the EFI system partition of the recorded disk.
func (r *Recording) ESP(ctx context.Context) (ESP, error) {
	at, err := espOf(ctx, r.base)
	return ESP{r, at}, err
}

// Writes returns the indexes of the recording's writes to the partition.
func (e ESP) Writes() []int {
	var writes []int
	for i, w := range e.recording.entries {
		if at := int64(w.sector) * logSector; len(w.data) > 0 && at >= e.at.offset && at < e.at.offset+e.at.size {
			writes = append(writes, i)
		}
	}
	return writes
}

// Files returns files of the partition after a power cut, by their paths, as a firmware reads them: nothing is repaired
// before. What cannot be read is left out.
func (e ESP) Files(ctx context.Context, c Cut, dir string, names ...string) (map[string]string, error) {
	image, file := filepath.Join(dir, "esp.img"), filepath.Join(dir, "file")
	if err := e.recording.rebuildPart(c, e.at, image); err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, name := range names {
		if _, err := run(ctx, "mcopy", "-n", "-o", "-i", image, "::"+name, file); err != nil {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found[name] = string(content)
	}
	return found, ctx.Err()
}

// GRUB returns the signed GRUB of machines with SecureBoot.
func GRUB() ([]byte, error) {
	path, err := unpacked(signedGRUB)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Shim returns the shim of machines with SecureBoot.
func Shim() ([]byte, error) {
	path, err := unpacked(signedShim)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func change(file string, by func([]byte) ([]byte, error)) error {
	content, err := os.ReadFile(file)
	if err == nil {
		content, err = by(content)
	}
	if err == nil {
		err = os.WriteFile(file, content, 0o644)
	}
	return err
}

func copyUnpacked(to, name string) error {
	from, err := unpacked(name)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// grubMenuFile is where uefi.cfg finds the menu entries.
const grubMenuFile = "grub2/entries.cfg"

// WriteGRUBMenu writes the boot entries of a powered-off machine with SecureBoot as GRUB's menu entries, as blscfg
// does. The default is first, and IDs are names of files without ".conf".
func (m *Machine) WriteGRUBMenu(ctx context.Context) error {
	entries, err := m.BootEntries(ctx)
	if err != nil {
		return err
	}
	var menu strings.Builder
	for _, e := range entries {
		var options []string
		for o := range strings.FieldsSeq(e.Options) {
			options = append(options, "'"+o+"'")
		}
		fmt.Fprintf(&menu, "menuentry '%s' --id '%s' {\n\tlinux %s %s\n\tinitrd %s\n}\n",
			e.Title, strings.TrimSuffix(e.File, ".conf"), e.linux, strings.Join(options, " "), e.initrd)
	}
	return m.ChangeBoot(ctx, "cat >"+grubMenuFile+" <<'END'\n"+menu.String()+"END\n")
}
