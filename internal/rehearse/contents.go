package rehearse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

// What an image with pivot has.
const (
	program = "usr/bin/pivot"
	unit    = "usr/lib/systemd/system/pivot-firstboot.service"
	module  = "usr/lib/dracut/modules.d/90pivot/module-setup.sh"
)

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
		found = append(found, i.ofPivot(early.Dracut)...)
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

// ofPivot judges program, units and dracut module of pivot: a part without the others does nothing.
func (i image) ofPivot(early map[string]bool) (found []verdict.Finding) {
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
	case early["pivot"] && !has[program]:
		found = append(found, forgotten("its initramfs has pivot, and the system has not"))
	case early != nil && has[module] && !early["pivot"]:
		found = append(found, forgotten("it has pivot's dracut module, and its initramfs was made without: a first boot runs in the started system; dracut --add pivot"))
	}
	return found
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
