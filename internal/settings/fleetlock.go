package settings

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// FleetLock is the FleetLock server from which the machine gets a slot before a reboot.
type FleetLock struct {
	URL   string // of the server; "": no FleetLock
	Group string // "": the group "default"
	ID    string // of the machine; "": derived from its machine ID
}

// CheckFleetLockURL returns an error if text is not the URL of a server. It rejects credentials, because
// URLs appear in messages and the protocol has no authentication.
func CheckFleetLockURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%q is not allowed; it is a URL, as https://fleetlock.example", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("a user, a query or a fragment is not allowed in the URL of the fleet's lock")
	}
	return nil
}

// checkFleetLockGroup returns an error if text is not a valid group.
func checkFleetLockGroup(text string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+$`).MatchString(text) {
		return fmt.Errorf("%q is not allowed; a group has letters, digits, points and dashes", text)
	}
	return nil
}

// checkFleetLockID returns an error if text is not a valid ID of a machine.
func checkFleetLockID(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("%q is not allowed; an ID has no white space", text)
	}
	return nil
}
