package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
)

// Standin simulates "ostree admin" on the host. All other ostree commands run the real one.
type Standin struct {
	Calls    []string // the verbs of "ostree admin", in order
	Version  string   // version of libostree; "": one that uses the lock file
	Features string   // additional lines of the feature list

	// Composefs creates a composefs file in each deployment, like a libostree with that feature.
	// The file is not a mountable image.
	Composefs bool

	// Fail, if not nil, is called before and after each call takes effect. The call returns its
	// error.
	Fail func(call int, after bool) error

	Programs map[string]string // what other programs print, by name

	host   *Host
	staged []string // arguments of the staged deployment
	name   string   // name of the staged deployment
}

// Versions of libostree with different ways to lock finalization.
const (
	lockByFile  = "2022.7"
	LockInState = "2023.8" // the first that stores the lock in the staged state
	SoftReboots = "2025.3" // the first that prepares soft reboots
	KeepsKeys   = "2026.1" // the first that carries the owners of options over to a staged deployment
)

// run is the Run function of the host for ostree.
func (s *Standin) run(ctx context.Context, argv ...string) ([]byte, error) {
	if out, known := s.Programs[argv[0]]; known {
		return []byte(out), nil
	}
	switch {
	case strings.Join(argv, " ") == "umount --recursive /run/nextroot":
		return nil, os.RemoveAll(s.host.Path("/run/nextroot"))
	case strings.Join(argv, " ") == "systemctl stop ostree-boot-complete.service":
		return nil, nil
	case len(argv) > 1 && argv[0] == "ostree" && argv[1] == "--version":
		return fmt.Appendf(nil, "libostree:\n Version: '%s'\n Features:\n  - libcurl\n%s", s.version(), s.Features), nil
	case len(argv) < 3 || argv[0] != "ostree":
		return nil, fmt.Errorf("the stand-in knows no %q", argv)
	case argv[1] != "admin":
		return output(ctx, argv...)
	}
	s.Calls = append(s.Calls, argv[2])
	call := len(s.Calls)
	if s.Fail != nil {
		if err := s.Fail(call, false); err != nil {
			return nil, err
		}
	}
	if err := s.do(ctx, argv[2], argv[3:]); err != nil {
		return nil, err
	}
	if s.Fail != nil {
		return nil, s.Fail(call, true)
	}
	return nil, nil
}

func (s *Standin) version() string {
	if s.Version == "" {
		return lockByFile
	}
	return s.Version
}

func output(ctx context.Context, argv ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return out, err
}

func (s *Standin) do(ctx context.Context, verb string, args []string) error {
	switch verb {
	case "deploy":
		if !slices.Contains(args, "--stage") {
			return s.deploy(ctx, args)
		}
		return s.stage(args)
	case "finalize-staged":
		return s.finalize(ctx)
	case "undeploy":
		if _, err := os.Stat(s.stateFile()); errors.Is(err, fs.ErrNotExist) {
			index, err := strconv.Atoi(args[0])
			return errors.Join(err, s.host.Undeploy(index))
		}
		return s.unstage()
	case "cleanup": // args name the sysroot
		_, err := output(ctx, append([]string{"ostree", "admin", verb}, args...)...)
		return err
	case "set-default":
		return s.setDefaultCounted(args[0])
	case "prepare-soft-reboot":
		return s.prepareSoft(args[0])
	}
	return fmt.Errorf("the stand-in knows no verb %q", verb)
}

func (s *Standin) stateFile() string { return s.host.Path("/run/ostree/staged-deployment") }
func (s *Standin) lockFile() string  { return s.stateFile() + "-locked" }
func (s *Standin) deployDir() string {
	return filepath.Join(s.host.physical, "ostree/deploy", s.host.stateroot, "deploy")
}
func (s *Standin) originFile() string { return filepath.Join(s.deployDir(), s.name+".origin") }

// finalOrigin returns the path of the origin file during finalization.
func (s *Standin) finalOrigin() string { return filepath.Join(s.host.physical, "origin") }

// stage keeps the arguments and writes the staged state and its origin, like libostree.
func (s *Standin) stage(args []string) error {
	commit := args[len(args)-1]
	others, err := filepath.Glob(filepath.Join(s.deployDir(), commit+".[0-9]"))
	if err != nil {
		return err
	}
	serial := 0 // like libostree, one more than the highest existing one
	for _, other := range others {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(other), "."))
		if err != nil {
			return err
		}
		serial = max(serial, n+1)
	}
	replaces := s.name
	s.name = fmt.Sprintf("%s.%d", commit, serial)
	s.staged = nil
	var kargs []any
	locked := false
	for _, a := range args {
		flag, value, _ := strings.Cut(a, "=")
		switch flag {
		case "--stage":
			continue
		case "--lock-finalization":
			locked = true
			continue
		case "--origin-file":
			// Copy it now: the caller may remove it after staging.
			if err := copyFile(value, s.originFile()); err != nil {
				return err
			}
			a = "--origin-file=" + s.finalOrigin()
		case "--karg-append":
			kargs = append(kargs, value)
		}
		s.staged = append(s.staged, a)
	}
	if locked && s.version() < LockInState {
		return errors.New("error: Unknown option --lock-finalization")
	}
	if err := s.compose(filepath.Join(s.deployDir(), s.name)); err != nil {
		return err
	}
	return s.writeState(kargs, locked, replaces)
}

// compose creates the composefs file in a deployment. libostree creates it at checkout, before
// finalization.
func (s *Standin) compose(dir string) error {
	if !s.Composefs {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_ = exec.Command("chattr", "-f", "-i", dir).Run() // fails on a directory that ostree has not made
	return os.WriteFile(filepath.Join(dir, ostree.ComposefsFile), []byte("stand-in"), 0o644)
}

// composeAll calls compose for all deployments.
func (s *Standin) composeAll() error {
	all, err := filepath.Glob(filepath.Join(s.deployDir(), "*.[0-9]"))
	for _, dir := range all {
		err = errors.Join(err, s.compose(dir))
	}
	return err
}

func (s *Standin) writeState(kargs []any, locked bool, replaces string) error {
	booted, err := s.host.Sysroot().Booted()
	if err != nil {
		return err
	}
	type tuple = gvariant.Tuple
	entry := func(key, typ string, value any) tuple {
		return tuple{key, gvariant.Variant{Type: typ, Value: value}}
	}
	entries := []any{
		entry("target", "a{sv}", []any{entry("name", "s", s.name), entry("osname", "s", s.host.stateroot)}),
		entry("merge-deployment", "a{sv}", []any{
			entry("name", "s", fmt.Sprintf("%s.%d", booted.Checksum, booted.Serial)), entry("osname", "s", booted.Stateroot),
		}),
		entry("kargs", "as", kargs),
	}
	if err := os.MkdirAll(filepath.Dir(s.stateFile()), 0o755); err != nil {
		return err
	}
	if locked {
		entries = append(entries, entry("locked", "b", true))
		// For older versions write the file, too (ot-admin-builtin-deploy.c).
		if err := os.WriteFile(s.lockFile(), nil, 0o640); err != nil {
			return err
		}
	}
	state, err := gvariant.Encode("a{sv}", entries)
	if err != nil {
		return err
	}
	_, err = os.Stat(s.stateFile())
	if err == nil && replaces != s.name && s.version() >= LockInState {
		// Since 2023.7, replacing a staged deployment removes the lock file.
		if err := os.Remove(s.lockFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(s.stateFile(), state, 0o644)
}

// finalize has the real ostree deploy the staged deployment, with the kernel arguments in the
// staged state. It does nothing if that is locked.
func (s *Standin) finalize(ctx context.Context) error {
	staged, err := s.host.Sysroot().Staged()
	if err != nil || staged == nil || staged.Locked {
		return err
	}
	if staged.Held { // libostree finds no such merge deployment, and has changed nothing yet
		return fmt.Errorf("error: Failed to find merge deployment %s.%d for staged", staged.Merge.Checksum, staged.Merge.Serial)
	}
	// libostree reads the origin again at this point (ostree-sysroot.c).
	if err := errors.Join(os.Remove(s.stateFile()), os.Rename(s.originFile(), s.finalOrigin()), os.RemoveAll(filepath.Join(s.deployDir(), s.name))); err != nil {
		return err
	}
	argv := []string{"--karg-none"}
	for _, arg := range staged.KernelArguments {
		argv = append(argv, "--karg-append="+arg)
	}
	for _, a := range s.staged {
		if !strings.HasPrefix(a, "--karg") {
			argv = append(argv, a)
		}
	}
	booted, err := s.host.Sysroot().Booted()
	if err != nil {
		return err
	}
	if err := s.deploy(ctx, argv); err != nil || s.version() < KeepsKeys {
		return err
	}
	return s.carryKeys(booted)
}

// carryKeys adds the owners of options in a deployment's boot entry to that of the default deployment.
func (s *Standin) carryKeys(from ostree.Deployment) error {
	all, err := s.host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	var keys string
	for _, d := range all {
		if d.ID() == from.ID() {
			for _, one := range d.Entry.Sources {
				keys += ostree.SourceKey + one.Name + " " + one.Options + "\n"
			}
		}
	}
	file := s.host.Path("/boot/loader/entries/" + all[0].Entry.File)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, keys...), 0o644)
}

// deploy has the real ostree make a deployment. On a booted host ostree merges the running /etc.
// Here nothing is booted for ostree and it merges that of the default deployment, so the running
// one is made the default first. SELinux's configuration is hidden during the merge: otherwise
// ostree would refresh the policy with programs that this directory lacks.
func (s *Standin) deploy(ctx context.Context, args []string) error {
	booted, err := s.host.Sysroot().Booted()
	if err != nil {
		return err
	}
	all, err := s.host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	for i, d := range all {
		if i > 0 && d.ID() == booted.ID() {
			if err := s.setDefault(strconv.Itoa(i)); err != nil {
				return err
			}
		}
	}
	const config, hidden = "etc/selinux/config", "etc/selinux/hidden"
	moved := os.Rename(s.host.Path(config), s.host.Path(hidden)) == nil
	args = slices.Clone(args)
	for i, a := range args {
		if file, is := strings.CutPrefix(a, "--overlay-initrd=/boot/"); is {
			args[i] = "--overlay-initrd=" + s.host.Path("/boot/"+file)
		}
	}
	_, err = output(ctx, append([]string{"ostree", "admin", "deploy", "--sysroot=" + s.host.physical}, args...)...)
	if err == nil {
		err = errors.Join(s.composeAll(), s.host.prefixEntries())
	}
	if !moved {
		return err
	}
	merged, gerr := filepath.Glob(filepath.Join(s.deployDir(), "*.[0-9]", hidden))
	for _, found := range merged {
		gerr = errors.Join(gerr, os.Rename(found, filepath.Join(filepath.Dir(found), filepath.Base(config))))
	}
	return errors.Join(err, gerr)
}

// setDefaultCounted is setDefault with the index as libostree counts: a staged deployment is the first, and removed
// (ostree_sysroot_write_deployments).
func (s *Standin) setDefaultCounted(index string) error {
	if _, err := os.Stat(s.stateFile()); errors.Is(err, fs.ErrNotExist) {
		return s.setDefault(index)
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 1 {
		return fmt.Errorf("error: the staged deployment has index %s (%v)", index, err)
	}
	return errors.Join(s.setDefault(strconv.Itoa(i-1)), s.unstage())
}

// unstage removes the staged deployment.
func (s *Standin) unstage() error {
	err := errors.Join(os.Remove(s.stateFile()), os.Remove(s.originFile()), os.RemoveAll(filepath.Join(s.deployDir(), s.name)))
	if lerr := os.Remove(s.lockFile()); !errors.Is(lerr, fs.ErrNotExist) {
		err = errors.Join(err, lerr)
	}
	return err
}

// setDefault makes a deployment the default, like libostree since 2023.6, which may be newer than
// the testing machine's.
func (s *Standin) setDefault(index string) error {
	all, err := s.host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(index)
	if err != nil || first >= len(all) {
		return fmt.Errorf("error: Out of range deployment index %s (%v)", index, err)
	}
	order := append([]ostree.Deployment{all[first]}, slices.Delete(slices.Clone(all), first, first+1)...)
	for i, d := range order {
		file := s.host.Path("/boot/loader/entries/" + d.Entry.File)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text = regexp.MustCompile("(?m)^version .*").ReplaceAll(text, fmt.Appendf(nil, "version %d", len(order)-i))
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
