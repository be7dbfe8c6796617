package rpmostree

import (
	"fmt"
	"slices"
	"strings"
)

var kargsOptions = with(map[string]option{
	"append": {value: true}, "replace": {value: true}, "delete": {value: true},
	"append-if-missing": {value: true, since: release{2021, 5}}, "delete-if-present": {value: true, since: release{2021, 5}},
}, "lock-finalization", "unchanged-exit-77")

// keyOnly reports whether --append-if-missing and --delete-if-present of the release compare only
// the key: from commit 1a1ef139 until 3b7b2768.
func (r release) keyOnly() bool { return r.since(release{2023, 4}) && !r.since(release{2024, 1}) }

func (c *call) kargs() (int, error) {
	p, err := c.pending()
	if err != nil {
		return exitFailed, err
	}
	if len(c.options.given) == 0 {
		fmt.Fprintln(c.stdout, strings.Join(p.kargs, " "))
		return exitDone, nil
	}
	if c.options.has("delete") && c.options.has("replace") {
		return exitFailed, failf("Cannot specify both --delete and --replace")
	}
	if err := c.begin(); err != nil {
		return exitFailed, err
	}
	if c.control.Unconfigured != "" {
		return exitFailed, failf("origin unconfigured-state: %s", c.control.Unconfigured)
	}
	line, err := c.edit(p.kargs)
	if err != nil {
		return exitFailed, err
	}
	if slices.Equal(line, p.kargs) {
		fmt.Fprintln(c.stdout, "No changes.")
		if c.options.has("unchanged-exit-77") {
			return exitUnchanged, nil
		}
		return exitDone, nil
	}
	if err := c.stage(p.OSName, p.Checksum, p.deployed.Origin, line); err != nil {
		return exitFailed, err
	}
	return exitDone, c.printChanges()
}

// edit applies the options in the daemon's order: delete, replace, append, append-if-missing,
// delete-if-present.
func (c *call) edit(existing []string) (line []string, err error) {
	line = slices.Clone(existing)
	for _, arg := range c.options.values("delete") {
		if line, err = remove(line, arg); err != nil {
			return nil, err
		}
	}
	for _, arg := range c.options.values("replace") {
		if line, err = replace(line, arg); err != nil {
			return nil, err
		}
	}
	line = append(line, c.options.values("append")...)
	for _, arg := range c.options.values("append-if-missing") {
		if !c.has(line, arg) {
			line = append(line, arg)
		}
	}
	for _, arg := range c.options.values("delete-if-present") {
		if c.has(existing, arg) {
			if line, err = remove(line, arg); err != nil {
				return nil, err
			}
		}
	}
	return line, nil
}

// has reports whether line has arg, as the options "append-if-missing" and "delete-if-present" test
// it.
func (c *call) has(line []string, arg string) bool {
	if c.control.release().keyOnly() {
		return slices.ContainsFunc(line, func(have string) bool { return keyOf(have) == keyOf(arg) })
	}
	return slices.Contains(line, arg)
}

func keyOf(arg string) string {
	key, _, _ := strings.Cut(arg, "=")
	return key
}

// remove implements ostree_kernel_args_delete: KEY=VALUE removes the first exact match, KEY the
// only argument with that key.
func remove(line []string, arg string) ([]string, error) {
	if i := slices.Index(line, arg); i >= 0 {
		return slices.Delete(line, i, i+1), nil
	}
	of := ofKey(line, keyOf(arg))
	switch {
	case len(of) == 0:
		return nil, failf("No key '%s' found", keyOf(arg))
	case strings.Contains(arg, "="):
		return nil, failf("No karg '%s' found", arg)
	case len(of) > 1:
		return nil, failf("Multiple values for key '%s' found", arg)
	}
	return slices.Delete(line, of[0], of[0]+1), nil
}

// replace implements ostree_kernel_args_new_replace, for KEY=NEW and KEY=OLD=NEW.
func replace(line []string, arg string) ([]string, error) {
	key, value, _ := strings.Cut(arg, "=")
	of := ofKey(line, key)
	if len(of) == 0 {
		return nil, failf("No key '%s' found", key)
	}
	if old, updated, ok := strings.Cut(value, "="); ok {
		i := slices.Index(line, key+"="+old)
		if i < 0 {
			return nil, failf("No karg '%s=%s' found", key, old)
		}
		line[i] = key + "=" + updated
		return line, nil
	}
	if len(of) > 1 {
		return nil, failf("Multiple values for key '%s' found", key)
	}
	line[of[0]] = arg
	return line, nil
}

// ofKey returns the indexes of the arguments with a key.
func ofKey(line []string, key string) (places []int) {
	for i, arg := range line {
		if keyOf(arg) == key {
			places = append(places, i)
		}
	}
	return places
}
