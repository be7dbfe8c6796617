package rehearse

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/verdict"
)

// subject is one thing to be judged: programs that are asked, and what their answers mean.
type subject struct {
	programs [][]string
	files    map[string]File // that the programs read, by their paths
	// judge is called with how the programs ended. Its error is that of the context, or says why nothing can be judged.
	judge func(ctx context.Context, ended []ending) ([]verdict.Finding, error)
}

// nothing judges what this machine does not ask for.
func nothing(context.Context, []ending) ([]verdict.Finding, error) { return nil, nil }

// image is a system, as far as its files say what is to be known.
type image struct {
	repo    *ostree.Repo
	commit  ostree.Checksum
	release string // of its kernel; "" if its modules are not where they are looked for
	files   []ostree.BootFile
	// initramfs returns what the initramfs contains. It is read once, when it is first asked for.
	initramfs func() (InitramfsContents, error)
}

func (s Stage) open(commit ostree.Checksum) (i image, err error) {
	if i.repo, err = ostree.OpenRepo(s.Repo); err != nil {
		return i, err
	}
	i.commit = commit
	i.files, err = i.repo.BootFiles(commit)
	if k := slices.IndexFunc(i.files, ostree.BootFile.IsKernel); err == nil && k >= 0 && path.Dir(i.files[k].Dir) == modules {
		i.release = path.Base(i.files[k].Dir)
	}
	i.initramfs = sync.OnceValues(i.readInitramfs)
	return i, err
}

// read returns a file of the kernel's; "" if there is none.
func (i image) read(name string) (string, error) { return i.text(path.Join(modules, i.release, name)) }

// text returns a file; "" if there is none.
func (i image) text(name string) (string, error) {
	data, err := i.repo.ReadFile(i.commit, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(data), err
}

func (i image) readInitramfs() (c InitramfsContents, err error) {
	n := slices.IndexFunc(i.files, ostree.BootFile.IsInitramfs)
	if n < 0 {
		return c, errors.New("there is none")
	}
	file, err := os.Open(i.repo.FileObject(i.files[n].Object))
	if err != nil {
		return c, err
	}
	defer file.Close()
	return ReadInitramfs(file)
}

// early are the modules that are there before / is mounted.
type early struct {
	InitramfsContents
	builtin map[string]bool
}

func (e early) has(module string) bool {
	name := moduleName(module)
	return e.Modules[name] || e.builtin[name]
}

// opener is dracut's module with the program that opens disks of LUKS.
const opener = "systemd-cryptsetup"

// early reads the initramfs, and which modules are built into the kernel.
func (i image) early() (e early, err error) {
	if e.InitramfsContents, err = i.initramfs(); err != nil {
		return e, fmt.Errorf("cannot read the initramfs of kernel %s: %w", i.release, err)
	}
	if e.Opens && e.Dracut != nil {
		e.Dracut[opener] = true // of older ones, crypt itself has the program
	}
	list, err := i.read("modules.builtin")
	e.builtin = map[string]bool{}
	for file := range strings.FieldsSeq(list) {
		e.builtin[moduleName(file)] = true
	}
	return e, err
}
