package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/fleetlock"
	"machine-pivot/internal/window"
)

// SettingsPath is where a machine has its administrator's choices about the first
// boot: lines KEY=VALUE with the keys that the kernel command line has behind
// "pivot.". Empty lines and those that begin with "#" say nothing.
const SettingsPath = "/etc/pivot/firstboot.conf"

// Settings are the administrator's choices about the first boot.
type Settings struct {
	Mode         Mode         // key mode
	OnFailure    OnFailure    // key on-failure
	RebootMethod RebootMethod // key reboot-method
	ImageKargs   ImageKargs   // key image-kargs
	Health       []string     // key health: units that must be active for a system on trial to be kept
	Metrics      string       // key metrics: the file of the machine that Prometheus' node exporter reads; "": none
	Window       string       // key window: when a pivot by hand may change the machine (package window); "": at any time
	FleetLock    FleetLock    // keys fleetlock, fleetlock-group and fleetlock-id
}

// None is the window, or the server of a fleet's lock, of which there is none, whatever was
// chosen otherwise.
const None = "none"

// FleetLock is the fleet's lock, of which a machine takes a slot before a reboot.
type FleetLock struct {
	URL   string // of the server; "": there is none
	Group string // "": fleetlock.DefaultGroup
	ID    string // of the machine; "": derived from its machine ID
}

// Mode is where the first boot is done.
type Mode string

// The modes. What the initramfs leaves undone, and the proof on the boot after,
// is the real root's in both of the first two.
const (
	ModeInitramfs Mode = "initramfs" // in the initramfs, if it holds pivot
	ModeSystem    Mode = "system"    // in the real root only
	ModeOff       Mode = "off"       // not at all: nothing is done and nobody is held
)

// OnFailure is what the initramfs does about a failure that trying again cannot mend.
type OnFailure string

// What there is to do.
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
)

// ImageKargs is what becomes of the kernel arguments that an image brings of its own.
type ImageKargs string

// What there is to do.
const (
	ImageKargsPrint ImageKargs = "print" // name them, as rpm-ostree leaves them out
	ImageKargsApply ImageKargs = "apply" // keep the command line in step with them, as bootc does
)

// Settings reads the choices from the kernel command line and SettingsPath; the
// command line wins, and on it the last of a key. What nobody chose is as in
// DefaultSettings. The error, of kind BadInput, has a line for each thing that is
// wrong; the settings returned with it hold what is right. A mode that is not
// understood is DefaultSettings' too, whatever was chosen before it.
func (h *Host) Settings() (Settings, error) {
	settings := DefaultSettings()
	line, err := h.cmdline()
	if err != nil {
		return settings, err
	}
	text, unread := os.ReadFile(h.Path(SettingsPath))
	wrong := settings.readFile(string(text))
	for key, value := range line.Prefixed("pivot.") {
		if err := settings.set(key, value); err != nil {
			wrong = append(wrong, fmt.Errorf("kernel command line, pivot.%s: %w", dashed(key), err))
		}
	}
	if unread != nil && !errors.Is(unread, fs.ErrNotExist) {
		return settings, fmt.Errorf("cannot read the settings: %w", unread)
	}
	if len(wrong) == 0 {
		return settings, nil
	}
	return settings, fault.New(fault.BadInput, "cannot use the settings of the first boot:\n%w", errors.Join(wrong...)).
		WithHint("correct or remove what is named; what is left out has its default")
}

// DefaultSettings are those of a machine whose administrator chose nothing:
// whoever puts pivot into an initramfs wants it to work there.
func DefaultSettings() Settings {
	return Settings{Mode: ModeInitramfs, OnFailure: OnFailureStop, RebootMethod: RebootFirmware, ImageKargs: ImageKargsPrint}
}

// readFile takes over the lines of a file and returns what is wrong with them.
func (s *Settings) readFile(text string) []error {
	var wrong []error
	seen := map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.readLine(line, n, seen); err != nil {
			wrong = append(wrong, fmt.Errorf("%s, line %d: %w", SettingsPath, n, err))
		}
	}
	return wrong
}

// readLine takes over line n; seen is where each key was before.
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

// set sets one setting from its key and value.
func (s *Settings) set(key, value string) error {
	switch dashed(key) {
	case "mode":
		s.Mode = DefaultSettings().Mode // also if this one is misspelt: it is not the "off" before it
		return choose(&s.Mode, value, ModeInitramfs, ModeSystem, ModeOff)
	case "on-failure":
		return choose(&s.OnFailure, value, OnFailureStop, OnFailureSystem)
	case "reboot-method":
		return choose(&s.RebootMethod, value, RebootFirmware, RebootKexec)
	case "image-kargs":
		return choose(&s.ImageKargs, value, ImageKargsPrint, ImageKargsApply)
	case "health":
		return s.setHealth(value)
	case "metrics":
		return s.setMetrics(value)
	case "window":
		return orNone(&s.Window, value, func(text string) error {
			_, err := window.Parse(text, time.Local)
			return err
		})
	case "fleetlock":
		return orNone(&s.FleetLock.URL, value, fleetlock.CheckURL)
	case "fleetlock-group":
		return checked(&s.FleetLock.Group, value, fleetlock.CheckGroup)
	case "fleetlock-id":
		return checked(&s.FleetLock.ID, value, fleetlock.CheckID)
	}
	return fmt.Errorf("there is no setting %q; there are mode, on-failure, reboot-method, image-kargs, health, metrics, window, fleetlock, fleetlock-group and fleetlock-id", dashed(key))
}

// orNone is checked for a setting that can be taken back: on the kernel command line, for one
// boot.
func orNone(setting *string, value string, check func(string) error) error {
	if value == None {
		*setting = ""
		return nil
	}
	return checked(setting, value, check)
}

// checked sets a setting to a value that is fit for it.
func checked(setting *string, value string, check func(string) error) error {
	if err := check(value); err != nil {
		return err
	}
	*setting = value
	return nil
}

// unitName is the name of a unit with its type (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.(service|socket|target|mount|timer|path)$`)

// setHealth takes the names of units with commas between them: the kernel command line
// ends an argument at a blank.
func (s *Settings) setHealth(list string) error {
	s.Health = nil
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); !unitName.MatchString(name) {
			return fmt.Errorf("%q is not allowed; it is a list of units with commas between them, as kubelet.service,crio.service", list)
		}
		s.Health = append(s.Health, name)
	}
	return nil
}

// setMetrics takes a name that the node exporter reads: it skips all but *.prom.
func (s *Settings) setMetrics(path string) error {
	if !filepath.IsAbs(path) || filepath.Ext(path) != ".prom" || strings.ContainsFunc(path, unicode.IsControl) {
		return fmt.Errorf("%q is not allowed; it is an absolute path that ends in .prom", path)
	}
	s.Metrics = filepath.Clean(path)
	return nil
}

// choose sets a setting to one of the values that it can have.
func choose[T ~string](setting *T, value string, allowed ...T) error {
	if !slices.Contains(allowed, T(value)) {
		return fmt.Errorf("%q is not allowed; it is one of %v", value, allowed)
	}
	*setting = T(value)
	return nil
}

// dashed is a key as people write it: the kernel takes "_" and "-" as equal.
func dashed(key string) string { return strings.ReplaceAll(key, "_", "-") }
