package stories_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/test/worlds/hostdir"
)

// encapsulate writes an encapsulated MachineConfig with the given members of metadata and spec.
func encapsulate(h *hostdir.Host, metadata, spec string) {
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil, `{"metadata":{%s},"spec":{%s}}`, metadata, spec))
}

// rendered is how the machine-config operator marks its MachineConfigs.
const rendered = `"annotations":{"machineconfiguration.openshift.io/generated-by-controller-version":"x"}`

// TestSpelling: the machine-config daemon compares kernel arguments literally
// on its first start. Without a cluster, another spelling is not worth a reboot.
func TestSpelling(t *testing.T) {
	for _, c := range []struct {
		name, metadata string
		reboots        int
	}{
		{"from a cluster", rendered, 1},
		{"without one", `"name":"rendered-worker-0"`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t) // its boot entry has keep="a b"
			encapsulate(h, c.metadata, `"kernelArguments":["\"keep=a b\""]`)
			for range 2 {
				if err := boot(t, h); err != nil {
					t.Fatal(err)
				}
				if h.Reboots > 0 && h.Version() == "A.1" {
					h.Boot()
				}
			}
			if h.Reboots != c.reboots || strings.Contains(h.Options(), `"keep=a b"`) != (c.reboots == 1) || strings.Count(h.Options(), "a b") != 1 {
				t.Errorf("%d reboots, want %d; options %s", h.Reboots, c.reboots, h.Options())
			}
			expectClosed(t, h)
			expectStatus(t, h)
		})
	}
}

// TestSpellingWithTheImage: a deployment that is made anyway has the arguments in
// the requested spelling. A rollback to the other spelling is proven too.
func TestSpellingWithTheImage(t *testing.T) {
	h := hostdir.New(t)
	encapsulate(h, "", fmt.Sprintf(`"osImageURL":%q,"kernelArguments":["\"keep=a b\"","mitigations=off"]`, h.Image))
	for range 2 {
		if err := boot(t, h); err != nil {
			t.Fatal(err)
		}
		if h.Version() == "A.1" {
			h.Boot()
		}
	}
	if !strings.Contains(h.Options(), `"keep=a b" `) || strings.Contains(h.Options(), `keep="a b"`) {
		t.Errorf("options %s", h.Options())
	}
	expectStatus(t, h)
	if err := rollback(t, h); err != nil {
		t.Fatal(err)
	}
	if target := machineTarget(t, h); !strings.Contains(target, "mitigations=off") {
		t.Errorf("the way back does not prove that mitigations=off is gone: %s", target)
	}
	h.Boot()
	if !strings.Contains(h.Options(), `keep="a b"`) || h.Version() != "A.1" {
		t.Errorf("version %s, options %s", h.Version(), h.Options())
	}
	expectStatus(t, h)
}

// machineTarget returns the target in the status.
func machineTarget(t *testing.T, h *hostdir.Host) string {
	t.Helper()
	m := newMachine(t, h)
	s, err := m.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(s.Target)
}
