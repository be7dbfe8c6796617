package rehearse

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"machine-pivot/dracut"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
	systemdunits "machine-pivot/systemd-units"
)

// What an image with pivot has.
const (
	program = "usr/bin/pivot"
	unit    = "usr/lib/systemd/system/pivot-firstboot.service"
	module  = "usr/lib/dracut/modules.d/90pivot/module-setup.sh"
)

// maxProgram limits pivot's own program, in bytes. It has 18 MB.
const maxProgram = 128 << 20

// contents judges what a builder has put into an image, whatever the machine.
func (i image) contents(boot int64) subject {
	return subject{judge: func(context.Context, []ending) (found []verdict.Finding, err error) {
		if text, err := i.text("usr/lib/os-release"); err == nil && text == "" {
			found = append(found, forgotten("it has no /usr/lib/os-release: nothing can tell which system and version it is"))
		}
		early, err := i.initramfs()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			found = append(found, unusable("its initramfs is not whole: "+err.Error(), "make it again, in the image's build: dracut --force"))
		} else if err != nil {
			found = append(found, notJudged("its initramfs cannot be read: %v", err))
		} else if early.Dracut != nil && !early.Dracut["ostree"] {
			found = append(found, unusable("its initramfs has no dracut module ostree, and finds no deployment", `make it with dracut --add ostree`))
		}
		found = append(found, i.ofPivot(early)...)
		if size := 2 * i.bootSize(); boot > 0 && size > boot {
			found = append(found, unusable(fmt.Sprintf("kernel and initramfs of two such systems have %d bytes, and /boot has %d", size, boot), "make the initramfs smaller, or /boot larger"))
		}
		return found, nil
	}}
}

// runsPivot judges whether the image's pivot runs, if it has one.
func runsPivot() subject {
	return subject{programs: [][]string{{"/" + program, "version"}}, judge: func(_ context.Context, ended []ending) ([]verdict.Finding, error) {
		if how, _ := ended[0].failure(); how != "" && !ended[0].Missing {
			return []verdict.Finding{forgotten("its /usr/bin/pivot does not run: " + how)}, nil
		}
		return nil, nil
	}}
}

// ofPivot judges program, units and dracut module of pivot: a part without the others, or of another version, does not do
// what the others rely on.
func (i image) ofPivot(early InitramfsContents) (found []verdict.Finding) {
	has := map[string]bool{}
	for _, name := range []string{program, unit, module} {
		there, err := i.repo.HasPath(i.commit, name)
		if err != nil {
			return []verdict.Finding{notJudged("/%s: %v", name, err)}
		}
		has[name] = there
	}
	switch {
	case !has[program] && !has[unit]:
		found = append(found, forgotten("it has no pivot: a machine that runs it cannot be changed by pivot again"))
	case !has[program]:
		found = append(found, forgotten("it has pivot's units, and no /"+program))
	case !has[unit]:
		found = append(found, forgotten("it has /"+program+", and not its units: no first boot proves itself"))
	}
	switch {
	case early.Dracut["pivot"] && !has[program]:
		found = append(found, forgotten("its initramfs has pivot, and the system has not"))
	case early.Dracut != nil && has[module] && !early.Dracut["pivot"]:
		found = append(found, forgotten("it has pivot's dracut module, and its initramfs was made without: a first boot runs in the started system; dracut --add pivot"))
	}
	if has[program] {
		found = append(found, i.ofOneVersion(early.Pivot)...)
	}
	return found
}

// ofOneVersion compares the image's program with the other parts of pivot in the image. The program has the text of its own
// units and of its dracut module; early is the program in the initramfs, nil if that has none.
func (i image) ofOneVersion(early *Sum) (found []verdict.Finding) {
	text, err := i.repo.ReadFileUpTo(i.commit, program, maxProgram)
	if err != nil {
		return []verdict.Finding{notJudged("whether the parts of pivot in it are of one version: %v", err)}
	}
	if early != nil && *early != sha256.Sum256(text) {
		found = append(found, forgotten("the pivot in its initramfs is another one than its /"+program+": make the initramfs again, in the image's build: dracut --force"))
	}
	var others []string
	for _, name := range parts() {
		part, err := i.text(name)
		if err != nil {
			return append(found, notJudged("/%s: %v", name, err))
		}
		if !bytes.Contains(text, []byte(part)) {
			others = append(others, "/"+name)
		}
	}
	if others != nil {
		found = append(found, forgotten("its /"+program+" was built with other units: "+strings.Join(others, ", ")+"; install them from the same build"))
	}
	return found
}

// parts returns the paths of pivot's own units and drop-ins, and of what its dracut module has.
func parts() (names []string) {
	for dir, files := range map[string]embed.FS{"usr/lib/systemd/system": systemdunits.Files, "usr/lib/dracut/modules.d": dracut.Files} {
		_ = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
			if !d.IsDir() {
				names = append(names, path.Join(dir, name))
			}
			return err
		})
	}
	slices.Sort(names)
	return names
}

// bootSize returns the size of kernel and initramfs in bytes.
func (i image) bootSize() (size int64) {
	for _, f := range i.files {
		size += f.Size
	}
	return size
}

func forgotten(text string) verdict.Finding {
	return verdict.Finding{Weight: verdict.Warned, Text: printable.Line(strings.TrimSpace(text))}
}

// unusable is a finding against an image that no machine can start.
func unusable(text, remedy string) verdict.Finding {
	f := forgotten(text)
	f.Name = verdict.Initramfs
	return f.RefuseIf(true, remedy)
}
