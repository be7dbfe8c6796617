package kargs

import (
	"fmt"
	"strings"
)

// Severity says whether a problem forbids an argument.
type Severity string

const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is what is wrong with one argument of a configuration.
type Problem struct {
	Argument string   `json:"argument"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// MaxLength is the longest command line, in bytes, that every supported
// architecture takes: COMMAND_LINE_SIZE is 2048 on x86_64, arm64 and ppc64le
// (4096 on s390x), its last byte is the terminator, and the kernel cuts off the
// rest in silence.
const MaxLength = 2047

// Check reports what is wrong with the entries of a configuration. An entry may
// hold several arguments.
func Check(entries ...string) []Problem {
	var problems []Problem
	for _, entry := range entries {
		if msg := malformed(entry); msg != "" {
			problems = append(problems, Problem{entry, Error, msg})
			continue
		}
		for _, arg := range Split(entry) {
			if p, ok := judge(arg); ok {
				problems = append(problems, p)
			}
		}
	}
	return problems
}

// malformed says why an entry cannot be written to a boot entry and come out of
// the kernel's parser as it went in, or "".
func malformed(entry string) string {
	for i := 0; i < len(entry); i++ {
		if c := entry[i]; c < ' ' || c == 0x7f {
			return fmt.Sprintf("holds the control character 0x%02x", c)
		}
	}
	if strings.Count(entry, `"`)%2 != 0 {
		return "has a quote that is not closed: it would swallow every argument after it"
	}
	return ""
}

// judge holds one argument against the policy.
func judge(arg string) (Problem, bool) {
	key, _, _ := parts(arg)
	switch {
	case arg == initSeparator:
		return Problem{arg, Error, "would hand every argument after it to init"}, true
	case key == "":
		return Problem{arg, Error, "has no name"}, true
	}
	if why, found := refused(key); found {
		return Problem{arg, Error, why}, true
	}
	if why, found := weakening(meaning(arg)); found {
		return Problem{arg, Warning, why}, true
	}
	return Problem{}, false
}

// refused says why a configuration may not set a key, if it may not.
func refused(key string) (string, bool) {
	switch key {
	case "ostree":
		return "names the deployment to boot; only ostree itself may write it", true
	case "root", "rootflags", "rootfstype", "ro", "rw", "boot":
		return "decides which file system is booted; it is inherited from the boot entry", true
	case "init", "rdinit", "rd.break", "rd.emergency", "systemd.unit", "rd.systemd.unit",
		"single", "emergency", "rescue", "rd.shell":
		return "keeps the machine from starting its system", true
	case "initrd", "BOOT_IMAGE":
		return "is written by the boot loader", true
	case "ignition.firstboot", "ignition.platform.id", "$ignition_firstboot":
		return "belongs to Ignition's own first boot", true
	}
	return "", false
}

// isProtected reports whether an argument of the boot entry may never be
// removed: without it the machine does not find its system.
func isProtected(arg string) bool {
	switch key, _, _ := parts(arg); key {
	case "ostree", "root", "rootflags", "boot", "ignition.platform.id":
		return true
	}
	return false
}

// weakening says what security an argument (in its form of meaning) gives up.
func weakening(arg string) (string, bool) {
	switch arg {
	case "audit=0", "audit=off":
		return "switches auditing off", true
	case "selinux=0", "enforcing=0":
		return "switches SELinux off", true
	case "mitigations=off":
		return "switches every CPU vulnerability mitigation off", true
	case "module.sig_enforce=0":
		return "lets unsigned kernel modules in", true
	case "lockdown=none":
		return "switches kernel lockdown off", true
	}
	return "", false
}
