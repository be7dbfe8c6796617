package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"machine-pivot/internal/pinning"
	"machine-pivot/test/worlds/bootlab"
)

// want returns what the reports below should satisfy.
func want(t *testing.T) bootlab.Want {
	t.Helper()
	set, err := pinning.ParseCPUSet("0")
	if err != nil {
		t.Fatal(err)
	}
	return bootlab.Want{Image: "10.0.2.2:1/os@sha256:12", Kargs: []string{"nohz=on", marker}, Pinning: pinning.Workloads{"management": set}}
}

// arrivedReport returns the report of a machine that has arrived; oldReport that of one after the
// rollback.
func arrivedReport(t *testing.T) report {
	r := report{
		"cmdline": "root=x nohz=on " + marker, "deployment": "bb.0", "origin": "[origin]\ncustom-url=pivot://10.0.2.2:1/os@sha256:12",
		"closed": "/etc/x.bak", "ids": "3d1219c7c4c5404aaa1f6d2a48adfda4", "unit": "success", "status": `{"phase":"done"}`, "verify": "nothing differs\nyes",
	}
	for _, f := range want(t).PinningFiles() {
		r[f.Path] = strings.TrimSuffix(string(f.Content), "\n")
	}
	return r
}

func oldReport() report {
	return report{"cmdline": "root=x", "deployment": "aa.0", "closed": "/etc/x.bak", "unit": "success"}
}

// TestClaims: a correct machine fails no claim, and any difference fails at least one.
func TestClaims(t *testing.T) {
	wrong := func(good report, name, value string) report {
		r := maps.Clone(good)
		r[name] = value
		return r
	}
	for name, c := range map[string]struct {
		arrived, back report
		holds         bool
	}{
		"as it should be":      {arrivedReport(t), oldReport(), true},
		"no report":            {nil, oldReport(), false},
		"an argument lacks":    {wrong(arrivedReport(t), "cmdline", "root=x nohz=only "+marker), oldReport(), false},
		"a file differs":       {wrong(arrivedReport(t), pinning.KubeletPath, "{}"), oldReport(), false},
		"another image":        {wrong(arrivedReport(t), "origin", "custom-url=pivot://10.0.2.2:1/os@sha256:13"), oldReport(), false},
		"not closed":           {wrong(arrivedReport(t), "open", "/etc/x"), oldReport(), false},
		"Ignition again":       {wrong(arrivedReport(t), "stamp", "/boot/ignition.firstboot"), oldReport(), false},
		"no machine ID":        {wrong(arrivedReport(t), "ids", "uninitialized"), oldReport(), false},
		"two machine IDs":      {wrong(arrivedReport(t), "ids", "3d1219c7c4c5404aaa1f6d2a48adfda4\n4d1219c7c4c5404aaa1f6d2a48adfda4"), oldReport(), false},
		"the unit failed":      {wrong(arrivedReport(t), "unit", "exit-code"), oldReport(), false},
		"not done":             {wrong(arrivedReport(t), "status", `{"phase":"committed"}`), oldReport(), false},
		"status said no JSON":  {wrong(arrivedReport(t), "status", "done?"), oldReport(), false},
		"verify finds some":    {wrong(arrivedReport(t), "verify", "kernel argument"), oldReport(), false},
		"back: no report":      {arrivedReport(t), nil, false},
		"back: not back":       {arrivedReport(t), wrong(oldReport(), "deployment", "bb.0"), false},
		"back: the same image": {arrivedReport(t), wrong(oldReport(), "deployment", "bb.1"), false},
		"back: the argument":   {arrivedReport(t), wrong(oldReport(), "cmdline", marker), false},
		"back: begins anew":    {arrivedReport(t), wrong(oldReport(), "open", "/etc/x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			judged := claims{bootlab.Claims{To: io.Discard}}
			judged.arrived(c.arrived, want(t))
			judged.back(c.back, c.arrived, want(t))
			if (judged.Failed > 0) == c.holds {
				t.Errorf("%d claims fail", judged.Failed)
			}
		})
	}
}

// TestParseReport reads the lines of reports.
func TestParseReport(t *testing.T) {
	packed := base64.StdEncoding.EncodeToString([]byte("a b\nc\n"))
	for _, c := range []struct {
		lines []string
		want  report
	}{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{"x " + packed, "end ", ""}, report{"x": "a b\nc", "end": ""}},
		{[]string{"/etc/x " + packed}, report{"/etc/x": "a b\nc"}},
	} {
		if got, err := parseReport(c.lines); err != nil || !maps.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%q: %v, %v", c.lines, got, err)
		}
	}
	if got, err := parseReport([]string{"[  1.0] a message of a kernel"}); err == nil {
		t.Errorf("what is no report is read as %v", got)
	}
}

// TestWithoutDisk: missing arguments, disks and images are reported before anything boots.
func TestWithoutDisk(t *testing.T) {
	for _, args := range [][]string{{}, {"-image", ""}, {"-image", "/dev/null/x", "-programs", "/dev/null"}, {"x"}} {
		if err := command(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Error(fmt.Sprint(args), "no error")
		}
	}
}
