package main

import (
	"fmt"
	"io"
	"strings"

	"machine-pivot/test/lab"
)

// claims are what must hold. Each is printed, with whether it does.
type claims struct {
	to     io.Writer
	failed bool
}

func (c *claims) add(holds bool, format string, args ...any) {
	mark := "ok "
	if !holds {
		mark, c.failed = "NOT", true
	}
	fmt.Fprintf(c.to, "%s  %s\n", mark, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// arrived is about the boot after the first boot's reboot.
func (c *claims) arrived(r report, want lab.Want) {
	if c.add(r != nil, "it reports: %s", r["system"]); r == nil {
		return
	}
	for _, arg := range want.Kargs {
		c.add(r.has(arg), "kernel argument %s", arg)
	}
	for _, f := range want.PinningFiles() {
		c.add(r[f.Path] == strings.TrimSuffix(string(f.Content), "\n"), "file %s", f.Path)
	}
	if _, digest, found := strings.Cut(want.Image, "@"); found {
		c.add(strings.Contains(r["origin"], digest), "the deployment's origin names the image, %s", digest)
	}
	c.add(r["open"] == "" && r["closed"] != "", "the first boot is closed: the encapsulated MachineConfig is now .bak")
	c.add(r["unit"] == "success" && r.phase() == "done", "pivot-firstboot.service: %s; pivot status: %s", r["unit"], r.phase())
	c.add(strings.HasSuffix(r["verify"], "yes"), "pivot verify finds no difference")
}

// back is about the boot after the way back from a boot that was reported as arrived.
func (c *claims) back(r, arrived report, want lab.Want) {
	if c.add(r != nil, "it reports: %s", r["system"]); r == nil {
		return
	}
	c.add(r["deployment"] != arrived["deployment"], "another deployment is booted: %s, not %s", r["deployment"], arrived["deployment"])
	if want.Image == "" {
		c.add(r.commit() != "" && r.commit() == arrived.commit(), "of the same commit, %s", r.commit())
	} else {
		c.add(r.commit() != "" && r.commit() != arrived.commit(), "of another commit: %s, not %s", r.commit(), arrived.commit())
	}
	c.add(!r.has(marker), "no kernel argument %s", marker)
	c.add(r["open"] == "" && r["closed"] != "" && r["unit"] == "success", "the first boot does not begin anew")
}
