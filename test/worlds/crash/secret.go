package crash

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// secretHidden checks that no file that others than root can read holds the secret, as it is or
// base64-encoded.
func (m *Machine) secretHidden() error {
	return m.withSecret(func(path string) error {
		if m.readable(path) {
			return fmt.Errorf("everybody may read the secret in %s", strings.TrimPrefix(path, m.dir))
		}
		return nil
	})
}

// noCopiesLeft checks that the pinning files are only in the deployments and in the encapsulated
// MachineConfig: nothing below /var holds the secret.
func (m *Machine) noCopiesLeft() error {
	return m.withSecret(func(path string) error {
		if strings.HasPrefix(path, filepath.Join(m.dir, stateroot, "var")+"/") {
			return fmt.Errorf("the secret is still kept in %s", strings.TrimPrefix(path, m.dir))
		}
		return nil
	})
}

// withSecret calls found for each file that holds the secret. It is an error if there is none,
// except in a trial, where only the new system has it.
func (m *Machine) withSecret(found func(path string) error) error {
	encoded := []byte(base64.StdEncoding.EncodeToString([]byte(pinningFiles()[dropIn])))
	n := 0
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(content, []byte(secret)) && !bytes.Contains(content, encoded) {
			return err
		}
		n++
		return found(path)
	})
	if err == nil && n == 0 && m.trial == nil {
		err = errors.New("the secret is nowhere")
	}
	return err
}

// readable reports whether users other than root can read a file, by its mode and the modes of its
// parent directories.
func (m *Machine) readable(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o044 == 0 {
		return false
	}
	for dir := filepath.Dir(path); dir != m.dir; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o011 == 0 {
			return false
		}
	}
	return true
}
