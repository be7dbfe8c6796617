// Package settings reads the administrator's settings for the first boot, as systemd reads its own.
package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/verdict"
	"machine-pivot/internal/window"
	"machine-pivot/kargs"
)

// Path is the file with the administrator's settings for the first boot: lines
// KEY=VALUE, with the keys that follow "pivot." on the kernel command line. Empty lines and
// lines that begin with "#" are ignored. Files in the directory of this name with ".d", and an
// image's files below /usr/lib/pivot, have settings, too: see files.go.
const Path = "/etc/pivot/firstboot.conf"

// Settings are the administrator's settings for the first boot.
type Settings struct {
	Mode         Mode           // key mode
	OnFailure    OnFailure      // key on-failure
	RebootMethod RebootMethod   // key reboot-method
	ImageKargs   ImageKargs     // key image-kargs
	BoundImages  BoundImages    // key bound-images
	Fallback     Fallback       // key fallback
	BootLoader   BootLoader     // key boot-loader
	Health       []string       // key health: units that must be active to keep a system on trial
	Identity     Identity       // key identity
	Accept       []verdict.Name // key accept: verdicts that do not refuse an image
	Metrics      string         // key metrics: Prometheus textfile for the node exporter; "": none
	Window       string         // key window: when a manual pivot may change the machine (package window); "": at any time
	FleetLock    FleetLock      // keys fleetlock, fleetlock-group and fleetlock-id
}

// Identity is what a first boot does if the machine has lost its host name.
type Identity string

// Values of the key identity.
const (
	IdentityHold Identity = "hold" // it waits, and so do kubelet and what else is ordered after it, at most 5 minutes
	IdentityWarn Identity = "warn" // it only says so
)

// BootLoader is when the boot loader of an image is installed before its commit.
type BootLoader string

// Values of the key boot-loader.
const (
	BootLoaderNeeded BootLoader = "needed" // if otherwise this machine would not start the image's kernel
	BootLoaderAlways BootLoader = "always" // also if it is only another one, where there is EFI
	BootLoaderNever  BootLoader = "never"
)

// BootLoaders returns the values of the key boot-loader.
func BootLoaders() []BootLoader {
	return []BootLoader{BootLoaderNeeded, BootLoaderAlways, BootLoaderNever}
}

// None is the value that unsets a setting that another file has: window, FleetLock server, units,
// verdicts, metrics.
const None = "none"

// Mode is where the first boot is done.
type Mode string

// The modes. In the first two, the real root does what the initramfs left undone, and the proof
// on the boot after.
const (
	ModeInitramfs Mode = "initramfs" // in the initramfs, if it contains pivot
	ModeSystem    Mode = "system"    // in the real root only
	ModeOff       Mode = "off"       // not at all: nothing is done or held
)

// OnFailure is what the initramfs does about a permanent failure.
type OnFailure string

// The reactions to a permanent failure.
const (
	OnFailureStop   OnFailure = "stop"   // stop the boot, with the cause on every console
	OnFailureSystem OnFailure = "system" // step aside, so that the real root reports it
)

// RebootMethod is how the machine enters its next boot.
type RebootMethod string

// The methods.
const (
	RebootFirmware RebootMethod = "reboot" // through firmware and boot loader
	RebootKexec    RebootMethod = "kexec"  // the running kernel starts the next one
	RebootSoft     RebootMethod = "soft"   // the running kernel stays, and the userspace starts again
	RebootAuto     RebootMethod = "auto"   // the cheapest that is possible
	RebootEnter    RebootMethod = "enter"  // a first boot in the initramfs continues in the new system
)

// RebootMethods returns the methods of a command that changes the machine. RebootEnter is one of first boots alone.
func RebootMethods() []RebootMethod {
	return []RebootMethod{RebootFirmware, RebootKexec, RebootSoft, RebootAuto}
}

// ImageKargs is what happens to the kernel arguments that an image brings.
type ImageKargs string

// The treatments of an image's kernel arguments.
const (
	ImageKargsAuto  ImageKargs = "auto"  // apply them on a machine that bootc manages (host.OfBootc), else print them
	ImageKargsPrint ImageKargs = "print" // print them; do not apply them, like rpm-ostree
	ImageKargsApply ImageKargs = "apply" // keep the command line in sync with them, like bootc
)

// BoundImages is what happens if application images that an image binds (package bound) cannot be had
// before the reboot.
type BoundImages string

// The treatments of bound application images.
const (
	BoundImagesRequire BoundImages = "require" // refuse the image, like bootc
	BoundImagesIgnore  BoundImages = "ignore"  // go on without them
)

// Fallback is what happens if a committed system does not come up.
type Fallback string

// The fallbacks.
const (
	FallbackNone Fallback = "none" // it stays the default of the boot loader
	FallbackAuto Fallback = "auto" // it is entered once, where the boot loader can, and kept only once it is proven
)

// Read reads the settings of the machine with a root directory from their files and its kernel command line. The
// command line wins, and on it the last argument of a key; of the files, the last one with the key.
// Default applies to the rest. The error, of kind BadInput, has a line for each problem; the
// settings returned with it have all valid values. An invalid mode results in the default mode, even if a valid one precedes it.
func Read(root string, line kargs.Line) (Settings, error) {
	settings := Default()
	files, unread := machine(root).files()
	var wrong []error
	for _, file := range files {
		wrong = append(wrong, settings.readFile(file)...)
	}
	for key, value := range line.Prefixed("pivot.") {
		if err := settings.set(key, value); err != nil {
			wrong = append(wrong, fmt.Errorf("kernel command line, pivot.%s: %w", dashed(key), err))
		}
	}
	if unread != nil {
		return settings, unreadable(errors.Join(append(wrong, unread)...))
	}
	if len(wrong) == 0 {
		return settings, nil
	}
	return settings, fault.New(fault.BadInput, "cannot use the settings of the first boot:\n%w", errors.Join(wrong...)).
		WithHint("correct them in %s or on the kernel command line, or remove them; what is left out has its default", Path)
}

// Default returns the settings of a machine without any configuration. The default mode
// is the initramfs: an administrator who adds pivot to it wants it to work there.
func Default() Settings {
	return Settings{Mode: ModeInitramfs, OnFailure: OnFailureStop, RebootMethod: RebootFirmware, ImageKargs: ImageKargsAuto, BoundImages: BoundImagesRequire, Fallback: FallbackNone, Identity: IdentityHold, BootLoader: BootLoaderNeeded}
}

// Check checks the text of a file with settings. The error has a line for each problem.
func Check(path, text string) error {
	settings := Default()
	return errors.Join(settings.readFile(file{path, text})...)
}

// readFile applies the lines of a file and returns the problems in them.
func (s *Settings) readFile(file file) []error {
	var wrong []error
	seen := map[string]int{}
	n := 0
	for line := range strings.Lines(file.text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.readLine(line, n, seen); err != nil {
			wrong = append(wrong, fmt.Errorf("%s, line %d: %w", file.path, n, err))
		}
	}
	return wrong
}

// readLine applies line n. seen has the line of each key so far.
func (s *Settings) readLine(line string, n int, seen map[string]int) error {
	key, value, ok := strings.Cut(line, "=")
	key = dashed(strings.TrimSpace(key))
	if !ok {
		return fmt.Errorf("%q is no KEY=VALUE", line)
	}
	if before := seen[key]; before > 0 {
		return fmt.Errorf("%s is set on line %d already", key, before)
	}
	seen[key] = n
	return s.set(key, strings.TrimSpace(value))
}

// set applies one setting.
func (s *Settings) set(key, value string) error {
	switch dashed(key) {
	case "mode":
		s.Mode = Default().Mode // also if the value is invalid: an earlier "off" must not remain
		return choose(&s.Mode, value, ModeInitramfs, ModeSystem, ModeOff)
	case "on-failure":
		return choose(&s.OnFailure, value, OnFailureStop, OnFailureSystem)
	case "reboot-method":
		return choose(&s.RebootMethod, value, append(RebootMethods(), RebootEnter)...)
	case "image-kargs":
		return choose(&s.ImageKargs, value, ImageKargsAuto, ImageKargsPrint, ImageKargsApply)
	case "bound-images":
		return choose(&s.BoundImages, value, BoundImagesRequire, BoundImagesIgnore)
	case "fallback":
		return choose(&s.Fallback, value, FallbackNone, FallbackAuto)
	case "identity":
		return choose(&s.Identity, value, IdentityHold, IdentityWarn)
	case "boot-loader":
		return choose(&s.BootLoader, value, BootLoaders()...)
	case "health":
		return s.setHealth(value)
	case "accept":
		return s.setAccept(value)
	case "metrics":
		return s.setMetrics(value)
	case "window":
		return orNone(&s.Window, value, func(text string) error {
			_, err := window.Parse(text, time.Local)
			return err
		})
	case "fleetlock":
		return orNone(&s.FleetLock.URL, value, CheckFleetLockURL)
	case "fleetlock-group":
		return checked(&s.FleetLock.Group, value, checkFleetLockGroup)
	case "fleetlock-id":
		return checked(&s.FleetLock.ID, value, checkFleetLockID)
	}
	keys := Keys()
	last := len(keys) - 1
	return fmt.Errorf("there is no setting %q; there are %s and %s", dashed(key), strings.Join(keys[:last], ", "), keys[last])
}

// Keys returns the keys of all settings.
func Keys() []string {
	return []string{"mode", "on-failure", "reboot-method", "image-kargs", "bound-images", "fallback", "identity", "boot-loader", "health", "accept", "metrics", "window", "fleetlock", "fleetlock-group", "fleetlock-id"}
}

// orNone is checked for a setting that None unsets, for example on the kernel command line for
// one boot.
func orNone(setting *string, value string, check func(string) error) error {
	if value == None {
		*setting = ""
		return nil
	}
	return checked(setting, value, check)
}

// checked sets a setting if its value is valid.
func checked(setting *string, value string, check func(string) error) error {
	if err := check(value); err != nil {
		return err
	}
	*setting = value
	return nil
}

// unitName matches the name of a unit with its type (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.(service|socket|target|mount|timer|path)$`)

// setHealth parses names of units, separated by commas because a kernel argument cannot contain
// blanks.
func (s *Settings) setHealth(list string) error {
	if s.Health = nil; list == None {
		return nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); !unitName.MatchString(name) {
			return fmt.Errorf("%q is not allowed; it is a list of units with commas between them, as kubelet.service,crio.service", list)
		}
		s.Health = append(s.Health, name)
	}
	return nil
}

// setAccept parses names of verdicts.
func (s *Settings) setAccept(list string) (err error) {
	if s.Accept = nil; list != None {
		s.Accept, err = verdict.Parse(list)
	}
	return err
}

// setMetrics accepts only names that the node exporter reads, which are *.prom.
func (s *Settings) setMetrics(path string) error {
	if path == None {
		s.Metrics = ""
		return nil
	}
	if !filepath.IsAbs(path) || filepath.Ext(path) != ".prom" || strings.ContainsFunc(path, unicode.IsControl) {
		return fmt.Errorf("%q is not allowed; it is an absolute path that ends in .prom", path)
	}
	s.Metrics = filepath.Clean(path)
	return nil
}

// choose sets a setting if its value is one of those allowed.
func choose[T ~string](setting *T, value string, allowed ...T) error {
	if !slices.Contains(allowed, T(value)) {
		return fmt.Errorf("%q is not allowed; it is one of %v", value, allowed)
	}
	*setting = T(value)
	return nil
}

// dashed returns a key with dashes: like the kernel, it treats "_" and "-" as equal.
func dashed(key string) string { return strings.ReplaceAll(key, "_", "-") }
