package hostdir

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/ostree"
	"machine-pivot/ostree/gvariant"
)

// Standin plays "ostree admin" on the host.
type Standin struct {
	Calls []string // the verbs, in order

	// Fail, if not nil, is asked at each call, before it takes effect and after.
	// An error ends the call there.
	Fail func(call int, after bool) error

	Programs map[string]string // what other programs print, by name

	host   *Host
	staged []string // the arguments of the staged deployment
}

// run implements the host's way to run programs.
func (s *Standin) run(ctx context.Context, argv ...string) ([]byte, error) {
	if out, known := s.Programs[argv[0]]; known {
		return []byte(out), nil
	}
	if len(argv) < 3 || argv[0] != "ostree" || argv[1] != "admin" {
		return nil, fmt.Errorf("the stand-in knows no %q", argv)
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

func (s *Standin) do(ctx context.Context, verb string, args []string) error {
	switch verb {
	case "deploy":
		return s.stage(args)
	case "finalize-staged":
		return s.finalize(ctx)
	case "undeploy":
		return os.Remove(s.stateFile())
	case "set-default":
		return s.setDefault(args[0])
	}
	return fmt.Errorf("the stand-in knows no verb %q", verb)
}

func (s *Standin) stateFile() string { return s.host.Path("/run/ostree/staged-deployment") }

// stage keeps the arguments and writes the staged state as libostree does.
func (s *Standin) stage(args []string) error {
	if !slices.Contains(args, "--stage") {
		return fmt.Errorf("the stand-in only stages, but got %q", args)
	}
	booted, err := s.host.Sysroot().Booted()
	if err != nil {
		return err
	}
	s.staged = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--stage" })
	// The origin's file is read now: whoever staged may remove it.
	for i, a := range s.staged {
		if file, ok := strings.CutPrefix(a, "--origin-file="); ok {
			kept := filepath.Join(s.host.physical, "origin")
			if err := copyFile(file, kept); err != nil {
				return err
			}
			s.staged[i] = "--origin-file=" + kept
		}
	}
	var kargs []any
	for _, a := range args {
		if arg, ok := strings.CutPrefix(a, "--karg-append="); ok {
			kargs = append(kargs, arg)
		}
	}
	type tuple = gvariant.Tuple
	entry := func(key, typ string, value any) tuple {
		return tuple{key, gvariant.Variant{Type: typ, Value: value}}
	}
	state, err := gvariant.Encode("a{sv}", []any{
		entry("target", "a{sv}", []any{entry("name", "s", args[len(args)-1]+".0"), entry("osname", "s", "os")}),
		entry("merge-deployment", "a{sv}", []any{
			entry("name", "s", fmt.Sprintf("%s.%d", booted.Checksum, booted.Serial)), entry("osname", "s", booted.Stateroot),
		}),
		entry("kargs", "as", kargs),
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.stateFile()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.stateFile(), state, 0o644)
}

// finalize lets the real ostree deploy what was staged.
func (s *Standin) finalize(ctx context.Context) error {
	if err := os.Remove(s.stateFile()); err != nil {
		return err
	}
	argv := append([]string{"admin", "deploy", "--sysroot=" + s.host.physical}, s.staged...)
	if out, err := exec.CommandContext(ctx, "ostree", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// setDefault gives the boot entries another order, as libostree 2023.6 does and
// the one here may not.
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
