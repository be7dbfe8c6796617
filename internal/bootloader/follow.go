package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"machine-pivot/internal/secureboot"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
)

var (
	errNone  = errors.New("the image has no boot loader for bootupd")
	errNever = errors.New("the setting boot-loader=never")
)

// followed says what becomes of the boot loader with a new system.
type followed struct {
	err     error // why the image's cannot be installed, or would not start the new kernel
	install bool  // it is not installed yet
	wayBack error // why it would not start the running system's kernel; nil if it would
}

// follow finds out whether the image's boot loader starts the new kernel, and can be installed.
func (l Loader) follow(ctx context.Context, s systems) (f followed) {
	if s.unsure != nil {
		return followed{err: s.unsure}
	}
	payload, err := PayloadOf(s.repo, s.Next)
	switch {
	case err != nil:
		return followed{err: err}
	case len(payload.GRUBs("")) == 0:
		return followed{err: errNone}
	case s.Firmware == nil:
		return followed{err: errors.New("this machine does not start by EFI, and bootupctl update is not safe against a loss of power")}
	}
	if s.judge != nil {
		if f = s.byShims(payload); f.err != nil {
			return f
		}
	}
	switch {
	case s.Choice == settings.BootLoaderNever:
		return followed{err: errNever}
	case s.running == "": // what is installed on another machine is not known
		return followed{install: true}
	}
	installed, err := l.Installed(ctx, s.Next)
	f.err, f.install = err, err == nil && !installed
	return f
}

// byShims judges both kernels by the image's shims. One that starts what the image has is enough.
func (s systems) byShims(payload Payload) (f followed) {
	f.err = errNone
	for _, shim := range payload.Shims() {
		var judge *secureboot.Judge
		if judge, f.err = s.judgeWith(payload, shim); f.err == nil {
			return followed{wayBack: s.checkRunning(judge)}
		}
	}
	return f
}

// judgeWith returns who judges kernels once one of the image's shims is installed. The error says that this shim, or what it is to
// start, is not started.
func (s systems) judgeWith(payload Payload, shim string) (judge *secureboot.Judge, err error) {
	err = s.of(payload, shim).open(func(r io.ReaderAt, size int64) (err error) {
		judge, err = s.Firmware.WithShim(r, size)
		return err
	})
	if _, refused := errors.AsType[*secureboot.Refusal](err); refused {
		return nil, fmt.Errorf("the firmware would not start its shim (%w) unless it has newer keys (fwupdmgr update)", err)
	}
	if err == nil && judge == nil {
		err = errors.New("meanwhile nobody judges programs")
	}
	if err != nil {
		return nil, err
	}
	for _, grub := range payload.GRUBs(path.Dir(shim)) {
		if err := s.of(payload, grub).check(judge); err != nil {
			return nil, fmt.Errorf("its shim would not start its GRUB (%w)", err)
		}
	}
	if err := s.next.check(judge); err != nil {
		return nil, fmt.Errorf("its shim would not start this kernel, either (%w)", err)
	}
	return judge, nil
}

func (s systems) of(payload Payload, name string) program {
	return program(s.repo.FileObject(payload[name]))
}

// unlessLost gives a boot loader up that nothing is known to need, if there is no way back from it.
func (f followed) unlessLost() followed {
	if f.err == nil && f.install && f.wayBack != nil {
		return followed{err: fmt.Errorf("it would not start the running system's kernel any more (%w)", f.wayBack)}
	}
	return f
}

// announced returns what people are to know of a boot loader that will be installed.
func (f followed) announced(why string) []verdict.Finding {
	if !f.install {
		return nil
	}
	return []verdict.Finding{{Name: "boot-loader", Weight: verdict.Warned,
		Text: why + "; the image's own boot loader is installed before the commit (bootupctl update)"}}
}

// noHelp returns, as a part of a remedy, why the image's boot loader does not help.
func (f followed) noHelp() string {
	switch {
	case errors.Is(f.err, errNone):
		return ""
	case errors.Is(f.err, errNever):
		return ", or let pivot install the image's own boot loader, which starts this kernel: boot-loader=needed"
	}
	return fmt.Sprintf(". The image's own boot loader is no help: %v", f.err)
}
