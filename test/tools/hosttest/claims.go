package main

import (
	"regexp"
	"strings"

	"machine-pivot/test/worlds/bootlab"
)

// claims are the claims about the machine under test.
type claims struct{ bootlab.Claims }

// arrived checks the boot after the first boot's reboot.
func (c *claims) arrived(r report, want bootlab.Want) {
	if c.Add(r != nil, "it reports: %s", r["system"]); r == nil {
		return
	}
	for _, arg := range want.Kargs {
		c.Add(r.has(arg), "kernel argument %s", arg)
	}
	for _, f := range want.PinningFiles() {
		c.Add(r[f.Path] == strings.TrimSuffix(string(f.Content), "\n"), "file %s", f.Path)
	}
	if _, digest, found := strings.Cut(want.Image, "@"); found {
		c.Add(strings.Contains(r["origin"], digest), "the deployment's origin names the image, %s", digest)
	}
	c.Add(r["open"] == "" && r["closed"] != "", "the first boot is closed: the encapsulated MachineConfig is now .bak")
	c.Add(r["stamp"] == "", "Ignition does not run again: there is no /boot/ignition.firstboot")
	c.Add(oneID(r["ids"]), "all deployments have the machine ID of the first boot: %s", r["ids"])
	c.Add(r["unit"] == "success" && r.phase() == "done", "pivot-firstboot.service: %s; pivot status: %s", r["unit"], r.phase())
	c.Add(strings.HasSuffix(r["verify"], "yes"), "pivot verify finds no difference")
}

// back checks the boot after the rollback. arrived is the report from before the rollback.
func (c *claims) back(r, arrived report, want bootlab.Want) {
	if c.Add(r != nil, "it reports: %s", r["system"]); r == nil {
		return
	}
	c.Add(r["deployment"] != arrived["deployment"], "another deployment is booted: %s, not %s", r["deployment"], arrived["deployment"])
	if want.Image == "" {
		c.Add(r.commit() != "" && r.commit() == arrived.commit(), "of the same commit, %s", r.commit())
	} else {
		c.Add(r.commit() != "" && r.commit() != arrived.commit(), "of another commit: %s, not %s", r.commit(), arrived.commit())
	}
	c.Add(!r.has(marker), "no kernel argument %s", marker)
	c.Add(r["open"] == "" && r["closed"] != "" && r["unit"] == "success", "the first boot does not begin anew")
}

// oneID reports whether a text is one machine ID.
func oneID(text string) bool { return regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(text) }
