package verdict_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/verdict"
)

// TestSettle: all reasons are in one error, each with its remedy and the name that accepts it; a name accepts only its own.
func TestSettle(t *testing.T) {
	found := []verdict.Finding{
		{Name: verdict.Processor, Weight: verdict.Refused, Text: "needs v3", Remedy: "another image"},
		{Name: verdict.Drivers, Weight: verdict.Refused, Text: "no ahci", Remedy: "another kernel"},
		{Name: verdict.Drivers, Weight: verdict.Refused, Text: "no nvme", Remedy: "another kernel"},
		{Name: verdict.Drivers, Weight: verdict.Warned, Text: "no usb"},
		{Weight: verdict.Unknown, Text: "no modprobe"},
	}
	for _, c := range []struct {
		accept                  []verdict.Name
		text, hint, notes, kept string
	}{
		{nil, "cannot start the image on this machine: needs v3\nno ahci\nno nvme",
			"another image; another kernel; or, if you know better, have it used all the same: --accept processor --accept drivers; on a first boot the kernel argument pivot.accept=processor,drivers",
			"warning: no usb|whether this machine can start the new system is not judged in full: no modprobe", ""},
		{[]verdict.Name{verdict.Drivers}, "cannot start the image on this machine: needs v3",
			"another image; or, if you know better, have it used all the same: --accept processor; on a first boot the kernel argument pivot.accept=processor",
			"warning: accepted (drivers): no ahci|warning: accepted (drivers): no nvme|warning: no usb|whether this machine can start the new system is not judged in full: no modprobe", "no ahci|no nvme"},
		{[]verdict.Name{verdict.Programs, verdict.Processor, verdict.Drivers}, "", "",
			"warning: accepted (processor): needs v3|warning: accepted (drivers): no ahci|warning: accepted (drivers): no nvme|warning: no usb|whether this machine can start the new system is not judged in full: no modprobe", "needs v3|no ahci|no nvme"},
	} {
		accepted, notes, err := verdict.Decide(found, c.accept)
		var kept []string
		for _, a := range accepted {
			kept = append(kept, a.Text)
		}
		if text := ""; err != nil || c.text != "" {
			if err != nil {
				text = err.Error()
			}
			if text != c.text || fault.HintOf(err) != c.hint || fault.KindOf(err) != fault.Refused {
				t.Errorf("accepted %v: error %v, kind %v, hint %q", c.accept, err, fault.KindOf(err), fault.HintOf(err))
			}
		}
		if strings.Join(notes, "|") != c.notes || strings.Join(kept, "|") != c.kept {
			t.Errorf("accepted %v: notes %q, kept %q", c.accept, notes, kept)
		}
	}
}

// TestParse: a list has only names that exist, which the error lists.
func TestParse(t *testing.T) {
	if names, err := verdict.Parse("drivers, processor"); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
	for _, list := range []string{"", "drivers,", "driver", "Drivers", "drivers;processor"} {
		if _, err := verdict.Parse(list); err == nil || !strings.Contains(err.Error(), "there are processor, programs, drivers, ") {
			t.Errorf("%q: error %v", list, err)
		}
	}
}
