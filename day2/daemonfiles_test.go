package day2

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
)

// TestHandBackCheck: a machine is given back only if the daemon finds exactly its MachineConfig, and each reason
// against it has a remedy.
func TestHandBackCheck(t *testing.T) {
	good := handBackFacts{Recorded: true, Asked: true, Image: "registry.example/os@sha256:1", Booted: "registry.example/os@sha256:1"}
	if err := good.check(); err != nil {
		t.Errorf("a machine that can be given back: %v", err)
	}
	for want, change := range map[string]func(f *handBackFacts){
		"was interrupted":                      func(f *handBackFacts) { f.Interrupted = true },
		"on trial":                             func(f *handBackFacts) { f.Trial, f.Pending = true, true },
		"the next boot starts another":         func(f *handBackFacts) { f.Pending = true },
		"pivot has applied no MachineConfig":   func(f *handBackFacts) { f.Recorded, f.Asked = false, false },
		"the last change was not to the":       func(f *handBackFacts) { f.Asked = false },
		"differs from its MachineConfig: a; b": func(f *handBackFacts) { f.Differences = []string{"a", "b"} },
		"a; b; c; d; e; …":                     func(f *handBackFacts) { f.Differences = strings.Split("a b c d e f g", " ") },
		"names the image (none)":               func(f *handBackFacts) { f.Image = "" },
		"and its deployment (none)":            func(f *handBackFacts) { f.Booted = "" },
		"registry.example/os:4, and its deployment registry.example/os@sha256:1": func(f *handBackFacts) { f.Image = "registry.example/os:4" },
	} {
		f := good
		change(&f)
		if err := f.check(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), want) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}

// TestDaemonFiles: what is written, in which order.
func TestDaemonFiles(t *testing.T) {
	shipped := hostfiles.NewFile("/etc/shipped", 0o600, []byte("the image's"))
	annotations := hostfiles.NewFile(nodeAnnotations, 0o640, []byte("{}"))
	for name, c := range map[string]struct {
		host handedBack
		want []string
	}{
		"nothing but a name": {handedBack{}, []string{"0644 /etc/machine-config-daemon/currentimage", "0600 /etc/machine-config-daemon/currentconfig config"}},
		"files": {
			handedBack{
				Paths:    []string{"/etc/new", "/etc/shipped", "/etc/known", "/etc/shipped-known", "/var/opt/data"},
				Defaults: map[string]hostfiles.File{"/etc/shipped": shipped, "/etc/shipped-known": hostfiles.NewFile("/etc/shipped-known", 0o644, nil)},
				Kept:     map[string]bool{"/etc/known": true, "/etc/shipped-known": true},
			},
			[]string{
				"0644 /etc/machine-config-daemon/noorig/etc/new.mcdnoorig",
				"0600 /etc/machine-config-daemon/orig/etc/shipped.mcdorig the image's, as /etc/shipped",
				"0644 /etc/machine-config-daemon/currentimage", "0600 /etc/machine-config-daemon/currentconfig config",
			},
		},
		"a node that the daemon has never run on": {
			handedBack{Annotations: &annotations},
			[]string{
				"0644 /etc/machine-config-daemon/currentimage", "0600 /etc/machine-config-daemon/currentconfig config",
				"0640 /etc/machine-config-daemon/node-annotation.json.bak {}", "removes /etc/machine-config-daemon/node-annotations.json",
			},
		},
	} {
		c.host.Config = []byte("config")
		var got []string
		for _, f := range daemonFiles(c.host) {
			got = append(got, describe(f))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	own := ownRecords()
	if last := own[len(own)-1]; last.Path != machineconfig.RecordPath || !last.Removes() {
		t.Errorf("pivot's own files: %+v", own)
	}
}

func describe(f daemonFile) string {
	if f.Removes() {
		return "removes " + f.Path
	}
	text := fmt.Sprintf("%04o %s", f.Mode, f.Path)
	if len(f.Content) > 0 {
		text += " " + string(f.Content)
	}
	if f.LabelAs != "" {
		text += ", as " + f.LabelAs
	}
	return text
}
