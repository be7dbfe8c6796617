package e2e_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strconv"
	"testing"

	"machine-pivot/test/worlds/vm"
)

// expectPlot checks the machine's plot of its first boot. It must have both boots, with the times of
// the kernel and systemd, each step, and kubelet after the proof. A machine in a box has no initramfs.
func expectPlot(t *testing.T, r *vm.Report, boxed bool) {
	t.Helper()
	var names []string
	var ends []float64
	for decoder := xml.NewDecoder(bytes.NewReader(r.Plot)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is not XML: %v\n%s", err, r.Plot)
		}
		element, _ := token.(xml.StartElement)
		attr := map[string]string{}
		for _, a := range element.Attr {
			attr[a.Name.Local] = a.Value
		}
		if name, ok := attr["data-name"]; ok {
			end, err := strconv.ParseFloat(attr["data-end"], 64)
			if err != nil {
				t.Errorf("bar %s: %v", name, err)
			}
			names, ends = append(names, name), append(ends, end)
		}
	}
	want := []string{
		"kernel", "initramfs", "system", "read", "observe", "preflight", "pull", "prepare", "commit", "reboot",
		"kernel", "initramfs", "system", "read", "observe", "prove", "kubelet.service",
	}
	if boxed {
		want = slices.DeleteFunc(want, func(name string) bool { return name == "initramfs" })
	}
	if !slices.Equal(names, want) || !slices.IsSorted(ends) {
		t.Errorf("the bars are %q, to %v, want %q", names, ends, want)
	}
}
