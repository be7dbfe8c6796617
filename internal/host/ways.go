package host

import (
	"errors"
	"fmt"
	"strings"
)

// cheapest are the ways into the next system, in the order in which RebootAuto tries them: each saves
// what the one after it does in addition, and the last is always possible.
func cheapest() []RebootMethod { return []RebootMethod{RebootSoft, RebootKexec, RebootFirmware} }

// Ways returns the ways into the next system that a method stands for, in the order in which they are
// tried. It is a pure function.
func Ways(method RebootMethod) []RebootMethod {
	switch method {
	case RebootAuto:
		return cheapest()
	case RebootSoft, RebootKexec:
		return []RebootMethod{method, RebootFirmware}
	}
	return []RebootMethod{RebootFirmware}
}

// ErrOnce is why a system that is entered only once is never entered by a soft reboot.
var ErrOnce = errors.New("the new system is entered only once, and after a soft reboot a power cycle would not go back")

// Once returns the method for a system that is entered only once. It never is a soft reboot: see ErrOnce.
func (m RebootMethod) Once() RebootMethod {
	switch m {
	case RebootAuto:
		return RebootKexec
	case RebootSoft:
		return RebootFirmware
	}
	return m
}

// Noun names a method in a sentence.
func (m RebootMethod) Noun() string {
	switch m {
	case RebootSoft:
		return "a soft reboot"
	case RebootKexec:
		return "kexec"
	}
	return "an ordinary reboot"
}

// Foresee says which way into the next system is going to be taken, and why those before it are not.
// cannot has the reasons that are known before the commit. It returns "" for an ordinary reboot that is
// asked for. It is a pure function.
func Foresee(method RebootMethod, cannot map[RebootMethod]error) string {
	ways := Ways(method)
	if len(ways) == 1 {
		return ""
	}
	var possible, declined []string
	for _, way := range ways {
		if why := cannot[way]; why != nil {
			declined = append(declined, fmt.Sprintf("not %s, because %v", way.Noun(), why))
			continue
		}
		possible = append(possible, way.Noun()+way.condition())
	}
	return "the new system is entered by " + strings.Join(append([]string{strings.Join(possible, ", else by ")}, declined...), "; ")
}

// condition returns what only the commit decides about a way.
func (m RebootMethod) condition() string {
	if m == RebootSoft {
		return " if kernel, initramfs, kernel arguments and SELinux policy stay"
	}
	return ""
}
