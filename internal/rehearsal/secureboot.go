package rehearsal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/inflate"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/secureboot"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

// maxKernel is the most that a compressed kernel may expand to, in bytes. Those of aarch64 have about 50 MB.
const maxKernel = 256 << 20

// judgeKernel returns what speaks against the new kernel where Secure Boot is on: whoever judges it at the next boot would
// not start it.
//
// The rule: that is only believed if the running kernel, which was started, is judged to be one that is. On a machine for
// which this does not hold, something else decides.
func (f feature) judgeKernel(plan pivot.Plan, next, running ostree.Checksum) []verdict.Finding {
	firmware := secureboot.Firmware(f.m.Host.Path("/sys/firmware/efi"))
	judge, err := firmware.Judge()
	if err == nil && judge == nil {
		return nil
	}
	images, rerr := f.m.Host.ReadRepo()
	if err = errors.Join(err, rerr); err == nil {
		err = f.checkKernel(images, judge, next)
	}
	refusal, refused := errors.AsType[*secureboot.Refusal](err)
	switch before := plan.From().Packages; {
	case err == nil:
		return nil
	case !refused:
	case len(plan.Packages)+len(before.Layered)+len(before.Removed) > 0:
		err = fmt.Errorf("%w; but packages on top of the image may bring another", err)
	default:
		control := f.checkKernel(images, judge, running)
		if control == nil {
			return []verdict.Finding{{
				Name: verdict.SecureBoot, Weight: verdict.Refused, Text: "Secure Boot is on, and its kernel would not be started: " + refusal.Why,
				Remedy: f.remedy(images, firmware, judge, refusal, next, running),
			}}
		}
		err = fmt.Errorf("%w; but of the running one the same is found: %w", err, control)
	}
	return []verdict.Finding{{Weight: verdict.Unknown, Text: fmt.Sprintf("its kernel with Secure Boot: %v", err)}}
}

// checkKernel judges the kernel of a commit.
func (f feature) checkKernel(repo *ostree.Repo, judge *secureboot.Judge, commit ostree.Checksum) error {
	return withKernel(repo, commit, func(file *os.File) error { return withProgram(file, judge.Check) })
}

// withKernel opens the kernel of a commit.
func withKernel(repo *ostree.Repo, commit ostree.Checksum, use func(*os.File) error) error {
	files, err := repo.BootFiles(commit)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(files, ostree.BootFile.IsKernel)
	if i < 0 {
		return errors.New("there is no kernel")
	}
	return withObject(repo, files[i].Object, use)
}

func withObject(repo *ostree.Repo, object ostree.Checksum, use func(*os.File) error) error {
	file, err := os.Open(repo.FileObject(object))
	if err != nil {
		return err
	}
	defer file.Close()
	return use(file)
}

// judgeForm returns a warning if the new kernel is an EFI program that decompresses itself (EFI zboot), as on aarch64 since
// Fedora 37, and the running one is not. A boot loader of that time does not start it; which one is installed is not known.
func (f feature) judgeForm(next, running ostree.Checksum) []verdict.Finding {
	repo, err := f.m.Host.ReadRepo()
	if err != nil {
		return nil // nothing else can be judged either; a warning says so
	}
	zboot := func(commit ostree.Checksum) (is bool) {
		_ = withKernel(repo, commit, func(file *os.File) error {
			mark := make([]byte, 8) // "MZ", two bytes, and the mark of the form
			_, err := io.ReadFull(file, mark)
			is = err == nil && string(mark[:2]) == "MZ" && string(mark[4:]) == "zimg"
			return err
		})
		return is
	}
	if !zboot(next) || zboot(running) {
		return nil
	}
	return []verdict.Finding{{Name: "kernel-form", Weight: verdict.Warned,
		Text: "its kernel is an EFI zboot program, and the running one is not: GRUB before 2.06-88 of Fedora 37 cannot load it (the installed version: bootupctl status)"}}
}

// withProgram decompresses a program as GRUB does it before shim sees it.
func withProgram(file *os.File, use func(io.ReaderAt, int64) error) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	compressed, err := inflate.NewGzip(io.NewSectionReader(file, 0, info.Size()))
	if err != nil {
		return use(file, info.Size())
	}
	content, err := io.ReadAll(io.LimitReader(compressed, maxKernel))
	if err != nil {
		return fmt.Errorf("cannot decompress it: %w", err)
	}
	return use(bytes.NewReader(content), int64(len(content)))
}

// remedy returns what helps against a refusal.
func (f feature) remedy(repo *ostree.Repo, firmware secureboot.Firmware, judge *secureboot.Judge, refusal *secureboot.Refusal, next, running ostree.Checksum) string {
	switch {
	case refusal.Revoked:
		return "use a newer image: what this one has was withdrawn"
	case len(refusal.Signers) == 0:
		return "use an image with a signed kernel"
	case !judge.Shim():
		return "use an image with a kernel that is signed by one of those that the firmware trusts (" + judge.Trusted() + "), or enrol the certificate of its signer in the firmware's setup"
	}
	return "use an image with a kernel that is signed by one of those that shim trusts (" + judge.Trusted() + "), or enrol the certificate of its signer, which somebody confirms at the console of the next boot (mokutil --import FILE)" +
		f.byOtherLoader(repo, firmware, next, running)
}

// byOtherLoader returns whether the image's own boot loader would start its kernel, as a part of a remedy.
func (f feature) byOtherLoader(repo *ostree.Repo, firmware secureboot.Firmware, next, running ostree.Checksum) string {
	for _, shim := range shims(repo, next) {
		var judge *secureboot.Judge
		err := withObject(repo, shim, func(file *os.File) error {
			return withProgram(file, func(r io.ReaderAt, size int64) (err error) {
				judge, err = firmware.WithShim(r, size)
				return err
			})
		})
		if refusal, refused := errors.AsType[*secureboot.Refusal](err); refused {
			return ". The image's own boot loader is no help: the firmware would not start its shim (" + refusal.Why + ") unless it has newer keys (fwupdmgr update)"
		}
		if err != nil || judge == nil || f.checkKernel(repo, judge, next) != nil {
			continue
		}
		text := ", or first install the image's own boot loader (bootupctl update, as a program of the image): its shim starts this kernel"
		if f.checkKernel(repo, judge, running) != nil {
			text += "; but then the running system's kernel is not started any more, and there is no way back"
		}
		return text
	}
	return ""
}

// shims returns the shims that a commit has for bootupd, of all versions and names.
func shims(repo *ostree.Repo, commit ostree.Checksum) (all []ostree.Checksum) {
	var look func(tree ostree.Checksum)
	look = func(tree ostree.Checksum) {
		dir, err := repo.ReadDirectory(tree)
		if err != nil {
			return // there is none
		}
		for _, name := range slices.Sorted(maps.Keys(dir.Files)) {
			if strings.HasPrefix(name, "shim") && path.Ext(name) == ".efi" {
				all = append(all, dir.Files[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(dir.Dirs)) {
			look(dir.Dirs[name].Tree)
		}
	}
	for _, top := range []string{"usr/lib/efi", "usr/lib/bootupd/updates"} {
		if tree, err := repo.DirTree(commit, top); err == nil {
			look(tree)
		}
	}
	return all
}
