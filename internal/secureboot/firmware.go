// Package secureboot judges whether a machine with Secure Boot starts an EFI program, such as a kernel. It does as the
// installed shim, which GRUB asks, or as the firmware, if that started the program without shim. It knows what shim's
// source does (verify.c, pe.c, mok.c of 16.1). What the firmware does is as in EDK II (DxeImageVerificationLib).
package secureboot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The owners of variables.
const (
	global    = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
	databases = "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
	shimLock  = "605dab50-e046-4300-abb6-3dd810dd8b23"
	loaders   = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
)

// Firmware is where the kernel shows a machine's firmware: the path of /sys/firmware/efi.
type Firmware string

// Exists reports whether the machine was started by EFI.
func (f Firmware) Exists() bool {
	_, err := os.Stat(string(f))
	return err == nil
}

// Enabled reports whether Secure Boot is on. It is an error that nobody knows: there are no variables, as with the kernel
// argument efi=noruntime.
func (f Firmware) Enabled() (bool, error) {
	if _, err := os.Stat(string(f)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	dir := filepath.Join(string(f), "efivars")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
		return false, fmt.Errorf("whether Secure Boot is on is not known: there is nothing in %s", dir)
	}
	on, err := f.flag("SecureBoot", global)
	if err != nil || !on {
		return false, err
	}
	setup, err := f.flag("SetupMode", global)
	return !setup, err
}

// flag reports whether a variable has the value 1.
func (f Firmware) flag(name, owner string) (bool, error) {
	value, err := f.variable(name, owner)
	return len(value) > 0 && value[0] == 1, err
}

// variable returns the value of a variable; nil if there is none of the name.
func (f Firmware) variable(name, owner string) ([]byte, error) {
	const attributes = 4 // bytes before the value
	text, err := os.ReadFile(filepath.Join(string(f), "efivars", name+"-"+owner))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) < attributes {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read a variable of the firmware: %w", err)
	}
	return text[attributes:], nil
}

// lists returns signature lists that shim shows. Those too large for a variable are complete in mok-variables, where the kernel has
// them from shim's table, or else in several variables.
func (f Firmware) lists(name string) ([]byte, error) {
	if all, err := os.ReadFile(filepath.Join(string(f), "mok-variables", name)); err == nil {
		return all, nil
	}
	all, err := f.variable(name, shimLock)
	for i := 1; err == nil; i++ {
		more, rerr := f.variable(name+strconv.Itoa(i), shimLock)
		if rerr != nil || more == nil {
			return all, rerr
		}
		all = append(all, more...)
	}
	return all, err
}

// Judge is who decides about programs on a machine, and by what.
type Judge struct {
	shim            bool // or the firmware itself
	allowed, denied database
	level           map[string]int // the lowest generation of each component that may start (SBAT)
}

// Judge returns who judges kernels on this machine; nil if nobody does: there is no EFI, or Secure Boot or shim's
// validation is off.
func (f Firmware) Judge() (*Judge, error) {
	on, err := f.Enabled()
	if err != nil || !on {
		return nil, err
	}
	mok, err := f.lists("MokListRT")
	if err != nil {
		return nil, err
	}
	j := &Judge{shim: len(mok) > 0} // which always makes that list, if only with an entry that names nothing
	if !j.shim {
		return j, errors.Join(f.checkFirmwareJudges(), j.add(f, true))
	}
	insecure, err := f.flag("MokSBStateRT", shimLock)
	if err != nil || insecure {
		return nil, err
	}
	ignore, err := f.flag("MokIgnoreDB", shimLock)
	if err != nil {
		return nil, err
	}
	denied, err := f.lists("MokListXRT")
	if err != nil {
		return nil, err
	}
	level, err := f.variable("SbatLevelRT", shimLock)
	j.allowed, j.denied, j.level = readDatabase(mok, true), readDatabase(denied, true), readLevel(level)
	return j, errors.Join(err, j.add(f, !ignore))
}

// add adds the firmware's databases.
func (j *Judge) add(f Firmware, db bool) error {
	denied, err := f.variable("dbx", databases)
	if err != nil {
		return err
	}
	j.denied.append(readDatabase(denied, j.shim))
	if !db {
		return nil
	}
	allowed, err := f.variable("db", databases)
	j.allowed.append(readDatabase(allowed, j.shim))
	return err
}

func (d *database) append(more database) {
	d.hashes, d.certs = append(d.hashes, more.hashes...), append(d.certs, more.certs...)
	d.revoked, d.unread = append(d.revoked, more.revoked...), d.unread+more.unread
}

// checkFirmwareJudges returns an error unless systemd's boot loader or stub was started, of which it is known that the
// firmware judges what they start. A GRUB without shim may have other rules.
func (f Firmware) checkFirmwareJudges() error {
	loader, err := f.variable("LoaderInfo", loaders)
	if err != nil {
		return err
	}
	stub, err := f.variable("StubInfo", loaders)
	if err == nil && len(stub) == 0 && !strings.HasPrefix(string(bytes.ReplaceAll(loader, []byte{0}, nil)), "systemd-boot") {
		err = errors.New("which boot loader was started is not known, with Secure Boot on: neither shim nor systemd-boot has left its variables")
	}
	return err
}

// readLevel reads shim's list of components and generations.
func readLevel(text []byte) map[string]int {
	level := map[string]int{}
	for line := range strings.Lines(string(bytes.TrimRight(text, "\x00"))) {
		if fields := strings.Split(strings.TrimSpace(line), ","); len(fields) > 1 {
			level[fields[0]], _ = strconv.Atoi(fields[1])
		}
	}
	return level
}
