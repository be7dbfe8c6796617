package bootloader

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/secureboot"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
)

// Change is a change from the running system to the next one, as far as boot loaders see it.
type Change struct {
	Next, Running ostree.Checksum // their commits; Running is zero if that system is on another machine
	Firmware      secureboot.Firmware
	Unsure        error // why nobody knows the firmware
	Choice        settings.BootLoader
	Layered       bool // packages on top of the image may bring another kernel
}

// systems are both systems of a change, opened.
type systems struct {
	Change
	repo          *ostree.Repo
	next, running program // the kernels
	judge         *secureboot.Judge
	unsure        error // why nobody knows who judges them
}

func (l Loader) open(c Change) (s systems, err error) {
	s.Change = c
	if s.repo, err = ostree.OpenRepo(l.Repo); err != nil {
		return s, err
	}
	if s.next, err = kernelOf(s.repo, c.Next); err != nil {
		return s, err
	}
	if c.Running != (ostree.Checksum{}) {
		if s.running, err = kernelOf(s.repo, c.Running); err != nil {
			return s, err
		}
	}
	if s.unsure = c.Unsure; s.unsure == nil {
		s.judge, s.unsure = c.Firmware.Judge()
	}
	return s, nil
}

// Judge returns what speaks against the way in which the new kernel will be started: by its signatures, and by its form. It
// reports whether the image's boot loader must be installed before the commit.
//
// The rule: a kernel that the installed boot loader does not start is refused, unless the image's boot loader starts it, is started
// by the firmware, and can be installed. If then the running system's kernel is not started any more, that is a verdict of its own.
func (l Loader) Judge(ctx context.Context, c Change) (found []verdict.Finding, install bool) {
	s, err := l.open(c)
	if err != nil {
		return []verdict.Finding{notJudged(err)}, false
	}
	refusal, err := s.refusal()
	if err != nil {
		found = append(found, notJudged(err))
	}
	switch {
	case refusal != nil:
		return l.judgeRefused(ctx, s, refusal)
	case s.running != "" && s.next.decompressesItself() && !s.running.decompressesItself():
		return l.judgeForm(ctx, s, found)
	case c.Choice == settings.BootLoaderAlways && c.Firmware != nil:
		return l.judgeOther(ctx, s, found)
	}
	return found, false
}

func notJudged(err error) verdict.Finding {
	return verdict.Finding{Weight: verdict.Unknown, Text: fmt.Sprintf("its kernel with Secure Boot: %v", err)}
}

// refusal returns why whoever judges kernels at the next boot would not start the new one; nil if it would.
//
// The rule: that is only believed if the running kernel, which was started, is judged to be one that is. On a machine for
// which this does not hold, something else decides, and Known does not return its firmware.
func (s systems) refusal() (*secureboot.Refusal, error) {
	if s.judge == nil || s.unsure != nil {
		return nil, s.unsure
	}
	err := s.next.check(s.judge)
	refusal, refused := errors.AsType[*secureboot.Refusal](err)
	if !refused {
		return nil, err
	}
	if s.Layered {
		return nil, fmt.Errorf("%w; but packages on top of the image may bring another", err)
	}
	if control := s.checkRunning(s.judge); control != nil {
		return nil, fmt.Errorf("%w; but of the running one the same is found: %w", err, control)
	}
	return refusal, nil
}

// checkRunning returns why the running system's kernel would not be started; nil also if that is on another machine.
func (s systems) checkRunning(judge *secureboot.Judge) error {
	if s.running == "" {
		return nil
	}
	return s.running.check(judge)
}

// Known returns the firmware of a machine, by which images are judged for it elsewhere. It is an error that something else
// decides there what starts.
func Known(dir, repoPath string, running ostree.Checksum) (secureboot.Firmware, error) {
	firmware, err := secureboot.Read(dir)
	if err != nil {
		return nil, err
	}
	s, err := Loader{Repo: repoPath}.open(Change{Next: running, Firmware: firmware})
	if err == nil {
		err = s.unsure
	}
	if err == nil && s.judge != nil {
		err = s.next.check(s.judge)
	}
	if err != nil {
		return nil, err
	}
	return firmware, nil
}

// judgeRefused judges a kernel that the installed shim, or the firmware, would not start.
func (l Loader) judgeRefused(ctx context.Context, s systems, refusal *secureboot.Refusal) ([]verdict.Finding, bool) {
	const text = "Secure Boot is on, and its kernel would not be started: "
	refused := verdict.Finding{Name: verdict.SecureBoot, Weight: verdict.Refused, Text: text + refusal.Why, Remedy: remedy(s.judge, refusal)}
	if refusal.Revoked || len(refusal.Signers) == 0 || !s.judge.Shim() {
		return []verdict.Finding{refused}, false
	}
	f := l.follow(ctx, s)
	if f.err != nil {
		refused.Remedy += f.noHelp()
		return []verdict.Finding{refused}, false
	}
	found := f.announced("the installed shim would not start its kernel: " + refusal.Why)
	if f.install && f.wayBack != nil {
		found = append(found, verdict.Finding{
			Name: verdict.WayBack, Weight: verdict.Refused, Remedy: "use an image between both systems, with a shim that starts both kernels",
			Text: fmt.Sprintf("its kernel needs the image's own boot loader, which would not start the running system's any more (%v), so that there is no way back", f.wayBack),
		})
	}
	return found, f.install
}

// judgeForm judges a kernel that decompresses itself, where the running one does not. A boot loader of that time does not start it;
// which one is installed is not known.
func (l Loader) judgeForm(ctx context.Context, s systems, found []verdict.Finding) ([]verdict.Finding, bool) {
	const text = "its kernel is an EFI zboot program, and the running one is not: GRUB before 2.06-88 of Fedora 37 cannot load it"
	f := l.follow(ctx, s).unlessLost()
	if f.err == nil {
		return append(found, f.announced(text)...), f.install
	}
	return append(found, verdict.Finding{Name: "kernel-form", Weight: verdict.Warned,
		Text: fmt.Sprintf("%s (the installed version: bootupctl status); pivot does not install the image's boot loader: %v", text, f.err)}), false
}

// judgeOther judges a boot loader that nothing needs.
func (l Loader) judgeOther(ctx context.Context, s systems, found []verdict.Finding) ([]verdict.Finding, bool) {
	f := l.follow(ctx, s).unlessLost()
	if f.err != nil && !errors.Is(f.err, errNone) {
		found = append(found, verdict.Finding{Name: "boot-loader", Weight: verdict.Warned, Text: fmt.Sprintf("its boot loader is not installed: %v", f.err)})
	}
	return append(found, f.announced("boot-loader=always")...), f.install
}

// remedy returns what helps against a refusal, besides another boot loader.
func remedy(judge *secureboot.Judge, refusal *secureboot.Refusal) string {
	switch {
	case refusal.Revoked:
		return "use a newer image: what this one has was withdrawn"
	case len(refusal.Signers) == 0:
		return "use an image with a signed kernel"
	case !judge.Shim():
		return "use an image with a kernel that is signed by one of those that the firmware trusts (" + judge.Trusted() + "), or enrol the certificate of its signer in the firmware's setup"
	}
	return "use an image with a kernel that is signed by one of those that shim trusts (" + judge.Trusted() + "), or enrol the certificate of its signer, which somebody confirms at the console of the next boot (mokutil --import FILE)"
}
