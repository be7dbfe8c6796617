package hostfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// shadowPath is the file with the passwords: shadow(5).
const shadowPath = "/etc/shadow"

// PasswordPath returns the path of a user's password, which identifies an entry of
// KindPassword. The path is not a file but stands for the user's line in /etc/shadow. The
// entry does not exist if the user cannot log in with a password, because the line is locked
// or missing.
func PasswordPath(user string) string { return shadowPath + "/" + user }

// SSHKeys returns the canonical paths of the entries for a user's SSH keys: two directories,
// top-down, and the file. Ignition and the machine-config daemon write the file, and sshd of
// Fedora CoreOS and its derivatives reads it.
func SSHKeys(user string) []string {
	const dir = "/.ssh/authorized_keys.d"
	home := "/var/home/" + user
	return []string{home + path.Dir(dir), home + dir, home + dir + "/ignition"}
}

// NewPassword returns the password of a user, given its hash in the format of crypt(5).
func NewPassword(user, hash string) File {
	return File{Entry: Entry{Kind: KindPassword, Path: PasswordPath(user), Digest: DigestOf([]byte(hash))}, Content: []byte(hash)}
}

// CheckPassword returns an error for a text that is no hash of a password: an empty one, which lets anyone log in, one
// that locks the password, and no valid field.
func CheckPassword(hash string) error {
	switch {
	case hash == "":
		return errors.New("it is empty: everybody could log in")
	case strings.ContainsAny(hash, ":\n\x00") || strings.TrimSpace(hash) != hash:
		return errors.New("it is no hash as crypt(5) has it")
	case isLocked(hash):
		return errors.New("it is no hash: leave it out, which locks the password")
	}
	return nil
}

// lockedHash locks a password: it is not the hash of any password.
const lockedHash = "*"

// isLocked reports whether a hash locks the password.
func isLocked(hash string) bool { return strings.HasPrefix(hash, "!") || strings.HasPrefix(hash, "*") }

// Locks reports whether a file is a locked password.
func (f File) Locks() bool { return f.Kind == KindPassword && isLocked(string(f.Content)) }

// passwordOf returns the user of a password path, or "" for any other path.
func passwordOf(name string) string {
	if path.Dir(name) == shadowPath {
		return path.Base(name)
	}
	return ""
}

// OnDisk returns the path of the file that holds the entry: /etc/shadow for a password, and
// the entry's own path otherwise.
func (e Entry) OnDisk() string {
	if passwordOf(e.Path) != "" {
		return shadowPath
	}
	return e.Path
}

// readPassword reads the password of a user of the system at root. ok is false if it is locked
// or the user has no line.
func readPassword(root, user string) (f File, ok bool, err error) {
	f, ok, err = LineOfPassword(root, PasswordPath(user))
	return f, ok && !isLocked(string(f.Content)), err
}

// LineOfPassword reads the password at a path returned by PasswordPath, even if it is locked.
// ok is false if the user has no line.
func LineOfPassword(root, name string) (f File, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(root, shadowPath))
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err != nil {
		return f, false, fmt.Errorf("cannot read passwords: %w", err)
	}
	user := passwordOf(name)
	for line := range bytes.Lines(data) { // the first line counts
		if fields := shadowFields(string(line)); fields[0] == user && len(fields) > 1 {
			return NewPassword(user, fields[1]), true, nil
		}
	}
	return f, false, nil
}

// errNoUser is the error for a user without a line.
var errNoUser = errors.New("/etc/shadow has no line for this user")

// putPassword sets the password of a user, and the date of the change, in the shadow file at
// rel, as usermod(8) does. Other lines do not change.
func putPassword(root *os.Root, rel, user, hash string) error {
	file, err := root.Open(rel)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	content, err := withPassword(data, user, hash)
	if err != nil {
		return err
	}
	have, _, err := Read(root.Name(), rel)
	if err != nil {
		return err
	}
	have.Content = content
	dir, err := OpenDir(root.Name(), rel, FollowRoots)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.put(filepath.Base(rel), have)
}

// withPassword returns the content of a shadow file with another password for a user, changed
// today.
func withPassword(data []byte, user, hash string) ([]byte, error) {
	var lines bytes.Buffer
	found := false
	for line := range strings.Lines(string(data)) {
		if fields := shadowFields(line); !found && fields[0] == user && len(fields) > 2 {
			found = true
			fields[1], fields[2] = hash, strconv.FormatInt(time.Now().Unix()/86400, 10)
			line = strings.Join(fields, ":") + "\n"
		}
		lines.WriteString(line)
	}
	if !found {
		return nil, errNoUser
	}
	return lines.Bytes(), nil
}

// shadowFields returns the fields of a line of a shadow file.
func shadowFields(line string) []string { return strings.Split(strings.TrimSuffix(line, "\n"), ":") }

// lockPassword locks the password of a user. It is a no-op if the user has no line. A password that
// is no longer requested is locked: with an empty hash anybody could log in, and what it was before
// is not known. SSH keys keep working.
func lockPassword(root *os.Root, rel, user string) error {
	err := putPassword(root, rel, user, lockedHash)
	if errors.Is(err, errNoUser) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
