package rehearse

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

// changedPCRs returns the registers of a TPM that another image's boot changes: 4 and 9 (kernel and initramfs), 8 and
// 12 (arguments with the deployment's path), 11 (a unified kernel). Another boot loader changes 7, too, by the
// certificates that start it and the kernel. Whether another kernel alone does so is not known here.
func changedPCRs(bootLoader bool) []int {
	changed := []int{4, 8, 9, 11, 12}
	if bootLoader {
		changed = append(changed, 7)
	}
	return changed
}

// sealed judges disks that a TPM unlocks: nobody types a passphrase if none of their pins unlocks any more.
func sealed(facts Facts, changed []int) subject {
	keep := "7"
	if slices.Contains(changed, 7) {
		keep = `""`
	}
	return subject{judge: func(context.Context, []ending) (found []verdict.Finding, err error) {
		for _, f := range facts.FileSystems {
			for _, pins := range f.Unlocked {
				bound := lostPCRs(pins, changed)
				if len(bound) == 0 {
					continue
				}
				finding := verdict.Finding{Name: verdict.TPM, Weight: verdict.Warned, Text: fmt.Sprintf("%s stands on a disk that the TPM unlocks only while registers stay as they are that the new system changes (PCR %s)",
					printable.Line(f.At), strings.Trim(fmt.Sprint(bound), "[]"))}
				unlocks := slices.ContainsFunc(pins, func(p Pin) bool { return p.unlocks(changed) })
				found = append(found, finding.RefuseIf(!unlocks && (f.At == "/" || f.At == "/var"),
					"bind the disk to other registers, or to none: clevis luks regen or clevis luks bind, systemd-cryptenroll --tpm2-pcrs="+keep))
			}
		}
		return found, nil
	}}
}

// lostPCRs returns the registers in pins that are among those changed.
func lostPCRs(pins []Pin, changed []int) (all []int) {
	for _, p := range pins {
		for _, pcr := range append(lostPCRs(p.Pins, changed), p.PCRs...) {
			if slices.Contains(changed, pcr) && !slices.Contains(all, pcr) {
				all = append(all, pcr)
			}
		}
	}
	slices.Sort(all)
	return all
}
