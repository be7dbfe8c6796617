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

// shadowPath is the file of passwords: shadow(5).
const shadowPath = "/etc/shadow"

// PasswordPath is the path of a user's password, by which an entry of KindPassword is named.
// It is a line of /etc/shadow, and no file of its own. A user who cannot log in with a
// password has none there: whose line is locked, or who has no line.
func PasswordPath(user string) string { return shadowPath + "/" + user }

// NewPassword is the password of a user, by its hash as crypt(5) has it.
func NewPassword(user, hash string) File {
	return File{Entry: Entry{Kind: KindPassword, Path: PasswordPath(user), Digest: DigestOf([]byte(hash))}, Content: []byte(hash)}
}

// CheckPassword is an error for a text that is no hash of a password: nothing, which would
// let everybody in, what locks, and what is no field of a line.
func CheckPassword(hash string) error {
	switch {
	case hash == "":
		return errors.New("it is empty: everybody could log in")
	case strings.ContainsAny(hash, ":\n") || strings.TrimSpace(hash) != hash:
		return errors.New("it is no hash as crypt(5) has it")
	case isLocked(hash):
		return errors.New("it is no hash: leave it out, which locks the password")
	}
	return nil
}

// lockedHash is what locks a password: the hash of none.
const lockedHash = "*"

// isLocked reports whether nobody can log in with the password of a line.
func isLocked(hash string) bool { return strings.HasPrefix(hash, "!") || strings.HasPrefix(hash, "*") }

// Locks reports whether a file is a password that nobody can log in with.
func (f File) Locks() bool { return f.Kind == KindPassword && isLocked(string(f.Content)) }

// passwordOf is the user whose password is at a path; "" if it is that of something else.
func passwordOf(name string) string {
	if path.Dir(name) == shadowPath {
		return path.Base(name)
	}
	return ""
}

// OnDisk is the path of the file that an entry is, or is in.
func (e Entry) OnDisk() string {
	if passwordOf(e.Path) != "" {
		return shadowPath
	}
	return e.Path
}

// readPassword reads the password of a user below root: none if it is locked.
func readPassword(root, user string) (f File, ok bool, err error) {
	f, ok, err = LineOfPassword(root, PasswordPath(user))
	return f, ok && !isLocked(string(f.Content)), err
}

// LineOfPassword is the password at a path, as PasswordPath has it, also if it is locked; ok is
// false if the user has no line.
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
		if fields := strings.Split(string(line), ":"); fields[0] == user && len(fields) > 1 {
			return NewPassword(user, fields[1]), true, nil
		}
	}
	return f, false, nil
}

// errNoUser is why there is no line to change.
var errNoUser = errors.New("/etc/shadow has no line for this user")

// putPassword sets the password of a user in the file below root that is named, and the day
// on which that was done, as usermod(8) does. Other lines stay as they are.
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
	return putFile(root, rel, have)
}

// withPassword is the file of passwords with another one for a user.
func withPassword(data []byte, user, hash string) ([]byte, error) {
	var lines bytes.Buffer
	found := false
	for line := range strings.Lines(string(data)) {
		if fields := strings.Split(line, ":"); !found && fields[0] == user && len(fields) > 2 {
			found = true
			fields[1], fields[2] = hash, strconv.FormatInt(time.Now().Unix()/86400, 10)
			line = strings.Join(fields, ":")
		}
		lines.WriteString(line)
	}
	if !found {
		return nil, errNoUser
	}
	return lines.Bytes(), nil
}

// lockPassword lets nobody log in with the password of a user, if there is such a user.
func lockPassword(root *os.Root, rel, user string) error {
	err := putPassword(root, rel, user, lockedHash)
	if errors.Is(err, errNoUser) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
