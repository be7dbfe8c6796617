package stories_test

import (
	"strings"
	"testing"

	"machine-pivot/test/worlds/hostdir"
)

// TestOwnFiles: a file that pivot itself could not read is refused before it is written, so that
// the MachineConfig that corrects it can be applied.
func TestOwnFiles(t *testing.T) {
	for _, bad := range []string{
		`{path: /etc/pivot/firstboot.conf, contents: {source: "data:,reboot-method%3Dkexecc%0A"}}`,
		`{path: /etc/pivot/firstboot.conf.d/10-a.conf, contents: {source: "data:,reboot-method%3Dkexecc%0A"}}`,
		`{path: /etc/pivot/kernel-args.policy, contents: {source: "data:,refuse%20debug%0A"}}`,
	} {
		h := hostdir.New(t)
		files := func(some string) string {
			return "  config: {ignition: {version: 3.4.0}, storage: {files: [" + some + "]}}\n  kernelArguments: [a=1]\n"
		}
		if changed, _, err := apply(t, h, files(bad)); changed || err == nil || !strings.Contains(err.Error(), "storage.files[0]: pivot could not read its file") {
			t.Errorf("%s: changed %v, %v", bad, changed, err)
		}
		if changed, notes, err := apply(t, h, files("")); !changed || err != nil {
			t.Errorf("%s, corrected: changed %v, %v: %s", bad, changed, err, notes)
		}
	}
}
