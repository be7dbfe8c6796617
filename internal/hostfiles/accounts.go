package hostfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
)

// Accounts are the users and groups of a system: their IDs by name.
type Accounts struct {
	Users, Groups map[string]int
}

// ReadAccounts reads the accounts of a system. read returns a file by its path relative to
// the system's root, such as "etc/passwd". /etc takes precedence over /usr/lib, where images
// keep their accounts (nss-altfiles). Missing files are skipped, and so are lines without a
// number, as in the C library.
func ReadAccounts(read func(name string) ([]byte, error)) (Accounts, error) {
	users, err := accountsIn(read, "passwd")
	if err != nil {
		return Accounts{}, err
	}
	groups, err := accountsIn(read, "group")
	return Accounts{Users: users, Groups: groups}, err
}

func accountsIn(read func(name string) ([]byte, error), file string) (map[string]int, error) {
	numbers := map[string]int{}
	for _, dir := range []string{"usr/lib/", "etc/"} {
		data, err := read(dir + file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read accounts: %w", err)
		}
		found := map[string]int{}
		for line := range bytes.Lines(data) { // passwd(5), group(5): NAME:x:NUMBER:…
			fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 4)
			if len(fields) < 3 {
				continue
			}
			number, err := strconv.ParseUint(fields[2], 10, 32)
			if _, twice := found[fields[0]]; err == nil && !twice { // the first line counts
				found[fields[0]] = int(number)
			}
		}
		maps.Copy(numbers, found)
	}
	return numbers, nil
}

// Owned returns the entry with its user and group names resolved to IDs. It returns an error
// if a name does not exist.
func (a Accounts) Owned(e Entry) (Entry, error) {
	var err error
	if e.UID, err = numberOf(a.Users, "user", e.User, e.UID); err != nil {
		return e, fmt.Errorf("cannot give %s its owner: %w", e.Path, err)
	}
	if e.GID, err = numberOf(a.Groups, "group", e.Group, e.GID); err != nil {
		return e, fmt.Errorf("cannot give %s its owner: %w", e.Path, err)
	}
	e.User, e.Group = "", ""
	return e, nil
}

func numberOf(numbers map[string]int, what, name string, number int) (int, error) {
	if name == "" {
		return number, nil
	}
	found, ok := numbers[name]
	if !ok {
		return 0, fmt.Errorf("there is no %s %q", what, name)
	}
	return found, nil
}
