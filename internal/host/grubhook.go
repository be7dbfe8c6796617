package host

import (
	"errors"
	"strings"
)

// Marks around the hook. What is before and after them is the administrator's.
const (
	beginHook = "### BEGIN pivot: start one entry once; pivot removes this ###\n"
	endHook   = "### END pivot ###\n"
)

// grubHook is what GRUB executes. It clears the variable on the disk first, and makes the entry the
// default only if that has succeeded: otherwise the entry would be started again and again.
// fallback is the first entry, which is the old system: it is started if a file of the entry cannot
// be loaded, when GRUB would otherwise wait in its menu.
const grubHook = `if [ -s ${prefix}/` + ownBlock + ` ]; then
  load_env -f ${prefix}/` + ownBlock + ` ` + ownVariable + `
  if [ -n "${` + ownVariable + `}" ]; then
    set pivot_entry="${` + ownVariable + `}"
    set ` + ownVariable + `=
    if save_env -f ${prefix}/` + ownBlock + ` ` + ownVariable + `; then
      set default="${pivot_entry}"
      set fallback=0
    fi
  fi
fi
`

// withHook returns a configuration with the hook at its end, where no line of the administrator can
// change the default again.
func withHook(config string) (string, error) {
	config, err := withoutHook(config)
	if err != nil {
		return "", err
	}
	return config + "\n" + beginHook + grubHook + endHook, nil
}

// withoutHook returns a configuration as it was before withHook, byte by byte.
func withoutHook(config string) (string, error) {
	for {
		before, rest, found := strings.Cut(config, "\n"+beginHook)
		if !found {
			return config, nil
		}
		_, after, found := strings.Cut(rest, endHook)
		if !found {
			return "", errors.New("pivot's part of it has a begin and no end: remove what is after " + strings.TrimSpace(beginHook))
		}
		config = before + after
	}
}
