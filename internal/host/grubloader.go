package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// grubLoader is the GRUB of a machine that can start an entry once, and its default again at the boot after that.
//
// GRUB does that by itself if its configuration was made by grub2-mkconfig: it clears the variable
// next_entry of its environment block before it starts the entry that the variable names. The static
// configuration of bootupd, which Fedora CoreOS, RHCOS and bootc images have, does not know that
// variable. But it sources the administrator's custom.cfg, or at least user.cfg. There pivot
// adds a hook that does the same, between two marks, for as long as it is needed.
type grubLoader struct {
	Dir  string // its directory below /boot
	hook string // the file for the hook; "": the configuration needs none
}

// grubDirectories returns where GRUB's files can be below boot: in Fedora and its descendants, and
// elsewhere.
func grubDirectories(boot string) []string {
	return []string{filepath.Join(boot, "grub2"), filepath.Join(boot, "grub")}
}

// grubConfigured reports whether there is a configuration of GRUB below boot, the path of the machine's /boot.
func grubConfigured(boot string) bool {
	return slices.ContainsFunc(grubDirectories(boot), func(dir string) bool { return exists(filepath.Join(dir, "grub.cfg")) })
}

// findGrub returns the GRUB with its configuration below boot, the path of the machine's /boot. writes is
// Host.GrubWrites. The error says why GRUB cannot start an entry once.
func findGrub(boot string, writes func(path string) error) (grubLoader, error) {
	for _, dir := range grubDirectories(boot) {
		config, err := os.ReadFile(filepath.Join(dir, "grub.cfg"))
		if err != nil {
			continue
		}
		l := grubLoader{Dir: dir}
		if l.hook, err = hookFile(string(config)); err != nil {
			return grubLoader{}, err
		}
		return l, writes(filepath.Join(dir, l.written()))
	}
	return grubLoader{}, errors.New("no boot loader is known here that starts an entry once")
}

// method names the way in which the entry is started once.
func (l grubLoader) method() string {
	if l.hook == "" {
		return "GRUB's next_entry"
	}
	return "a hook in GRUB's " + l.hook
}

// written returns the file that GRUB is to write to, or, as long as that does not exist, the
// directory in which it will be.
func (l grubLoader) written() string {
	if l.hook == "" {
		return systemBlock
	}
	return "."
}

// Files in GRUB's directory that a static configuration sources.
const (
	grubCustomFile = "custom.cfg" // the last; since coreos-assembler's of October 2024 and in bootupd's
	grubUserFile   = "user.cfg"   // before the entries are known; also has the password of grub2-setpassword
)

var (
	grubComment = regexp.MustCompile(`(?m)^\s*#.*$`)
	grubSources = regexp.MustCompile(`(?m)^\s*(?:source|\.)\s+"?(?:\$prefix|\$\{prefix\})/(custom|user)\.cfg"?\s*$`)
)

// hookFile returns the file that a configuration needs a hook in, or "" if it starts $next_entry
// once by itself.
func hookFile(config string) (string, error) {
	config = grubComment.ReplaceAllString(config, "")
	if !strings.Contains(config, "blscfg") {
		return "", errors.New(`GRUB's configuration has no "blscfg": it does not start ostree's boot entries by their names`)
	}
	if strings.Contains(config, "save_env next_entry") {
		return "", nil
	}
	hook := ""
	for _, m := range grubSources.FindAllStringSubmatch(config, -1) {
		if file := m[1] + ".cfg"; hook != grubCustomFile {
			hook = file
		}
	}
	if hook == "" {
		return "", fmt.Errorf("GRUB's configuration has no %q and sources neither %s nor %s: it knows no entry that is started once", "save_env next_entry", grubCustomFile, grubUserFile)
	}
	return hook, nil
}
