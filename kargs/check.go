package kargs

import (
	"fmt"
	"strings"

	"machine-pivot/internal/problem"
)

// Check checks the entries of a configuration with DefaultPolicy, as Policy.Check does.
func Check(entries ...string) problem.Report { return DefaultPolicy().Check(entries...) }

// latinSpace is the no-break space of Latin-1. It is white space for the kernel (lib/ctype.c),
// but not for other programs that parse its command line.
const latinSpace = 0xa0

// malformed returns the reason why an entry would not survive being written to a boot entry and
// parsed by the kernel, or "".
func malformed(entry string) string {
	for i := 0; i < len(entry); i++ {
		switch c := entry[i]; {
		case c < ' ' || c == 0x7f:
			return fmt.Sprintf("holds the control character 0x%02x", c)
		case c == latinSpace:
			return "holds the byte 0xa0, at which the kernel would take it apart (in UTF-8 it is a part of some letters, as à)"
		}
	}
	if strings.Count(entry, `"`)%2 != 0 {
		return "has a quote that is not closed: it would swallow every argument after it"
	}
	return ""
}

// isProtected reports whether an argument of the boot entry must never be removed: without it
// the machine does not find its system.
func isProtected(arg string) bool {
	switch key, _, _ := parts(arg); key {
	case "ostree", "root", "rootflags", "boot", "ignition.platform.id":
		return true
	}
	return false
}
