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
	"slices"
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

// Firmware is what the kernel shows of a machine's firmware, as far as it decides what starts: files below /sys/firmware/efi, by
// their paths there. It has no secrets. nil: the machine was not started by EFI.
type Firmware map[string][]byte

// Read reads what the kernel shows in a directory, /sys/firmware/efi; without Secure Boot no more than that it is off. It is an
// error that nobody knows whether it is on: there are no variables, as with the kernel argument efi=noruntime.
func Read(dir string) (Firmware, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	f := Firmware{}
	if entries, err := os.ReadDir(filepath.Join(dir, "efivars")); err != nil || len(entries) == 0 {
		return f, fmt.Errorf("whether Secure Boot is on is not known: there is nothing in %s", filepath.Join(dir, "efivars"))
	}
	err := f.read(dir, "efivars/SecureBoot-"+global, "efivars/SetupMode-"+global)
	if err == nil && f.Enabled() {
		err = f.read(dir, "mok-variables/MokList*RT", "efivars/MokList*RT-"+shimLock, "efivars/MokList*RT[0-9]*-"+shimLock,
			"efivars/MokSBStateRT-"+shimLock, "efivars/MokIgnoreDB-"+shimLock, "efivars/SbatLevelRT-"+shimLock,
			"efivars/db-"+databases, "efivars/dbx-"+databases, "efivars/LoaderInfo-"+loaders, "efivars/StubInfo-"+loaders)
	}
	return f, err
}

// read reads the files that match patterns.
func (f Firmware) read(dir string, patterns ...string) error {
	for _, pattern := range patterns {
		names, err := fs.Glob(os.DirFS(dir), pattern)
		for _, name := range names {
			if err == nil {
				f[name], err = os.ReadFile(filepath.Join(dir, name))
			}
		}
		if err != nil {
			return fmt.Errorf("cannot read a variable of the firmware: %w", err)
		}
	}
	return nil
}

// Enabled reports whether Secure Boot is on.
func (f Firmware) Enabled() bool { return f.flag("SecureBoot", global) && !f.flag("SetupMode", global) }

// flag reports whether a variable has the value 1.
func (f Firmware) flag(name, owner string) bool {
	value := f.variable(name, owner)
	return len(value) > 0 && value[0] == 1
}

// variable returns the value of a variable; nil if there is none of the name.
func (f Firmware) variable(name, owner string) []byte {
	const attributes = 4 // bytes before the value
	text := f["efivars/"+name+"-"+owner]
	if len(text) < attributes {
		return nil
	}
	return text[attributes:]
}

// lists returns signature lists that shim shows. Those too large for a variable are complete in mok-variables, where the kernel has
// them from shim's table, or else in several variables.
func (f Firmware) lists(name string) []byte {
	if all, ok := f["mok-variables/"+name]; ok {
		return all
	}
	all := slices.Clone(f.variable(name, shimLock))
	for i := 1; ; i++ {
		more := f.variable(name+strconv.Itoa(i), shimLock)
		if more == nil {
			return all
		}
		all = append(all, more...)
	}
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
	if !f.Enabled() {
		return nil, nil
	}
	mok := f.lists("MokListRT")
	j := &Judge{shim: len(mok) > 0} // which always makes that list, if only with an entry that names nothing
	if !j.shim {
		j.add(f, true)
		return j, f.checkFirmwareJudges()
	}
	if f.flag("MokSBStateRT", shimLock) {
		return nil, nil
	}
	j.allowed, j.denied, j.level = readDatabase(mok, true), readDatabase(f.lists("MokListXRT"), true), readLevel(f.variable("SbatLevelRT", shimLock))
	j.add(f, !f.flag("MokIgnoreDB", shimLock))
	return j, nil
}

// add adds the firmware's databases.
func (j *Judge) add(f Firmware, db bool) {
	j.denied.append(readDatabase(f.variable("dbx", databases), j.shim))
	if db {
		j.allowed.append(readDatabase(f.variable("db", databases), j.shim))
	}
}

func (d *database) append(more database) {
	d.hashes, d.certs = append(d.hashes, more.hashes...), append(d.certs, more.certs...)
	d.revoked, d.unread = append(d.revoked, more.revoked...), d.unread+more.unread
}

// checkFirmwareJudges returns an error unless systemd's boot loader or stub was started, of which it is known that the
// firmware judges what they start. A GRUB without shim may have other rules.
func (f Firmware) checkFirmwareJudges() error {
	loader := bytes.ReplaceAll(f.variable("LoaderInfo", loaders), []byte{0}, nil)
	if len(f.variable("StubInfo", loaders)) > 0 || strings.HasPrefix(string(loader), "systemd-boot") {
		return nil
	}
	return errors.New("which boot loader was started is not known, with Secure Boot on: neither shim nor systemd-boot has left its variables")
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
