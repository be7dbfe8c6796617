package bootloader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"machine-pivot/internal/inflate"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/secureboot"
)

// maxKernel is the most that a compressed kernel may expand to, in bytes. Those of aarch64 have about 50 MB.
const maxKernel = 256 << 20

// program is the path of an EFI program: a kernel, a shim or a GRUB.
type program string

// kernelOf returns the kernel of a commit.
func kernelOf(repo *ostree.Repo, commit ostree.Checksum) (program, error) {
	files, err := repo.BootFiles(commit)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(files, ostree.BootFile.IsKernel)
	if i < 0 {
		return "", errors.New("there is no kernel")
	}
	return program(repo.FileObject(files[i].Object)), nil
}

// check returns nil if the program is started, and a *secureboot.Refusal if it is not.
func (p program) check(judge *secureboot.Judge) error { return p.open(judge.Check) }

// open decompresses a program as GRUB does it before shim sees it.
func (p program) open(use func(io.ReaderAt, int64) error) error {
	file, err := os.Open(string(p))
	if err != nil {
		return err
	}
	defer file.Close()
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

// decompressesItself reports whether a kernel is an EFI program that does so (EFI zboot), as on aarch64 since Fedora 37. Its
// beginning says so: nothing is decompressed for it.
func (p program) decompressesItself() bool {
	file, err := os.Open(string(p))
	if err != nil {
		return false
	}
	defer file.Close()
	mark := make([]byte, 8) // "MZ", two bytes, and the mark of the form
	_, err = io.ReadFull(file, mark)
	return err == nil && string(mark[:2]) == "MZ" && string(mark[4:]) == "zimg"
}
