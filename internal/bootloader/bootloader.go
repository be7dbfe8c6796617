// Package bootloader installs the boot loader that a system brings, with the bootupctl of that system: on each EFI system
// partition of a machine, before the system is deployed. It knows what the source of bootupd 0.2.35 and 0.3.2 does.
package bootloader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
)

// Loader installs boot loaders on a machine.
type Loader struct {
	Self    string // this program; its main function calls Inside first
	Repo    string // path of the ostree repository that has the systems
	Boot    string // path of the machine's /boot
	Sysroot string // and of its physical root directory
}

// limit is how long it may take: seconds, and more on a slow disk. Only what hangs takes longer.
const limit = 5 * time.Minute

// Installed reports whether the machine has the boot loader of a commit already. The error says why it cannot be installed.
func (l Loader) Installed(ctx context.Context, commit ostree.Checksum) (bool, error) {
	found, err := l.look(ctx, commit, false)
	return err == nil && len(found.differ) == 0, err
}

// Install installs the boot loader of a commit, and returns the partitions that have it. A signal does not end it. If the
// machine loses power, each partition has the old one or the new one, which must both start both systems.
//
// The rule: the files on the partitions decide about success, and not what bootupctl says. It installs nothing, and reports
// success, if it takes what is installed for newer.
func (l Loader) Install(ctx context.Context, commit ostree.Checksum) (partitions []string, err error) {
	found, err := l.look(context.WithoutCancel(ctx), commit, true)
	if err == nil && len(found.differ) > 0 {
		err = fmt.Errorf("after bootupctl update it is not that of the image: %s (%s)", strings.Join(found.differ, ", "), found.said)
	}
	if err != nil {
		return nil, fault.New(fault.Refused, "cannot install the image's boot loader: %w", err).
			WithHint("the machine starts as before; look at bootupctl status, and install it by hand, or set boot-loader=never")
	}
	return found.partitions, nil
}

// state is what is installed, compared with what a system brings.
type state struct {
	partitions []string // that have its boot loader
	differ     []string // files that are not as the system brings them
	said       string   // by bootupctl
}

// look compares what is installed with what a commit brings, after an update if one is wanted.
func (l Loader) look(ctx context.Context, commit ostree.Checksum, update bool) (s state, err error) {
	repo, err := ostree.OpenRepo(l.Repo)
	if err != nil {
		return s, err
	}
	payload, err := PayloadOf(repo, commit)
	if err != nil {
		return s, err
	}
	brought, err := payload.digests(repo)
	if err != nil {
		return s, err
	}
	found, err := l.ask(ctx, asked{Repo: l.Repo, Commit: commit, Boot: l.Boot, Sysroot: l.Sysroot, Update: update})
	if err != nil {
		return s, err
	}
	if s.said = printable.Line(lastLine(found.Said)); found.Failed != "" {
		s.said = found.Failed + ": " + s.said
	}
	for _, p := range found.Partitions {
		if differ, has := p.compare(payload, brought); has {
			s.partitions, s.differ = append(s.partitions, p.Device), append(s.differ, differ...)
		}
	}
	if len(s.partitions) == 0 {
		err = fmt.Errorf("no EFI system partition of the disks below /boot has a boot loader where the image's belongs (EFI/%s)",
			strings.Join(payload.GRUBs(""), ", EFI/"))
	}
	return s, err
}

// compare returns which files of a partition are not as they are brought. It has the boot loader if there is a GRUB at the
// place of one that is brought: its configuration is beside it, which no payload has. bootupctl may leave out files that are
// not there, when it adopts a machine, but without shim or GRUB nothing starts.
func (p partition) compare(payload Payload, brought map[string]string) (differ []string, has bool) {
	has = slices.ContainsFunc(payload.GRUBs(""), func(name string) bool { return p.Files[name] != "" })
	for _, name := range slices.Sorted(maps.Keys(brought)) {
		sum := p.Files[name]
		if sum == "" && !isProgram(name, "shim") && !isProgram(name, "grub") || sum == brought[name] {
			continue
		}
		differ = append(differ, path.Join("EFI", name)+" on "+p.Device)
	}
	return differ, has
}

// ask has another process of this program do what is asked.
func (l Loader) ask(ctx context.Context, a asked) (found answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it takes too long"))
	defer cancel()
	out, complaint, err := aside().Start(ctx, l.Self, a)
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		err = errors.New(printable.Line(lastLine(complaint)))
	}
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	return found, err
}

// lastLine returns the last line of what a program said: the reason, if it failed.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
