package kargs_test

import (
	"strings"
	"testing"

	"machine-pivot/kargs"
)

func TestPolicyOfAnAdministrator(t *testing.T) {
	policy, err := kargs.DefaultPolicy().Extend(`
# Multipath is set up by our own installer.
allow  root=/dev/disk/by-label/dm-mpath-root
refuse debug   fills the console
warn   rd.net* makes the initramfs wait for the network
allow  ostree
`)
	if err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		"root=/dev/disk/by-label/dm-mpath-root": "",
		"root=/dev/vda":                         "error: decides which file system is booted; it is inherited from the boot entry",
		"debug":                                 "error: fills the console",
		"debug=1":                               "error: fills the console",
		"rd.net.timeout.carrier=5":              "warning: makes the initramfs wait for the network",
		"rd.neednet=1":                          "",
		"ostree=/x":                             "error: names the deployment to boot; only ostree itself may write it",
		`audit="0"`:                             "warning: switches auditing off",
		"audit=1":                               "",
		"module.sig-enforce=0":                  "warning: lets unsigned kernel modules in",
		"--":                                    "error: would hand every argument after it to init",
	} {
		got := ""
		for _, p := range policy.Check(arg) {
			got += string(p.Severity) + ": " + p.Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", arg, got, want)
		}
	}
}

// TestPolicyPermits: only a rule permits an argument; that there is none does not.
func TestPolicyPermits(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "allow fips=1": true, "allow fips": true, "allow f*": true, "warn fips we know": true, "allow fips=0": false,
		"refuse fips no": false, "allow fips\nrefuse fips no": false, "refuse fips no\nallow fips=1": true, "forbid fips no\nallow fips": false,
	} {
		policy, err := kargs.DefaultPolicy().Extend(text)
		if err != nil || policy.Permits("fips=1") != want {
			t.Errorf("%q: %v, want %v; %v", text, !want, want, err)
		}
	}
}

func TestPolicyReportsEveryBadLine(t *testing.T) {
	_, err := kargs.Policy{}.Extend("deny x y\nrefuse\nwarn x\nallow a*b\nallow =x\nallow fine\n")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`line 1: "deny" is no verdict`, "line 2: refuse what?", "line 3: warn x: say why", "line 4: a*b: a * may only end a key", "line 5: =x: the argument has no name",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 6") {
		t.Error(err)
	}
}

// TestEmptyPolicy: the zero policy rejects only arguments that no policy can allow.
func TestEmptyPolicy(t *testing.T) {
	if p := (kargs.Policy{}).Check("root=/dev/vda audit=0 mitigations=off lsm=yama lockdown=none"); len(p) != 0 {
		t.Error(p)
	}
	if p := (kargs.Policy{}).Check(`a="b`, "x\ny", "=v"); len(p) != 3 {
		t.Error(p)
	}
}
