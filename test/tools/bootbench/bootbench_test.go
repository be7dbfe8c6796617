package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/box"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestWholeFirstBoots measures today's way and pivot's once, with a small tool image, and checks what does not
// depend on the load of the host. It is part of "make nightly".
func TestWholeFirstBoots(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines")
	}
	if missing := append(bootlab.Missing(), vm.Layout{}.Missing()...); len(missing) > 0 {
		need.Lacking(t, "cannot boot machines here: lacking "+strings.Join(missing, ", "))
	}
	t.Run("any B", func(t *testing.T) { expectToday(t, measured(t, false, todayNoFsync, rebootName, kexecName)) })
	t.Run("with the kernel of A", func(t *testing.T) { expectEnter(t, measured(t, false, rebootName, enterName)) })
	t.Run("in boxes", func(t *testing.T) {
		if missing := box.Missing(); len(missing) > 0 {
			need.Lacking(t, "cannot boot machines in boxes here: lacking "+strings.Join(missing, ", "))
		}
		r := measured(t, true, todayName, "pivot-system")
		today, ours := r.Results[0].Median, r.Results[1].Median
		if !r.Box || today.PowerOns != 2 || ours.PowerOns != 2 || today.Fetched < r.Sizes.OSImage+r.Sizes.ToolImage || ours.Fetched >= today.Fetched {
			t.Errorf("today's way %+v\npivot's %+v", today, ours)
		}
	})
}

// measured measures ways once, in boxes or in QEMU, and checks that no figure is missing.
func measured(t *testing.T, inBox bool, names ...string) *report {
	t.Helper()
	pictures := t.TempDir()
	s := options{source: "../../..", rounds: 1, tool: 20e6, box: inBox, pictures: pictures, console: io.Discard, log: os.Stderr}
	var err error
	if s.ways, err = waysFor(inBox, strings.Join(names, ",")); err != nil {
		t.Fatal(err)
	}
	r, err := s.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range r.Results {
		m := one.Median
		measured := m.Peak >= 32<<20 && m.Written >= 1<<20 && m.Later > 0 // much of B is in A
		if m.Wall <= 0 || m.CPU <= 0 || m.LatterWall <= 0 || m.LatterCPU <= 0 || m.LatterCPU >= m.CPU || measured == inBox || len(m.Steps) == 0 {
			t.Errorf("%s: figures are missing, or cannot be: %+v", one.Way, m)
		}
		if picture, err := os.ReadFile(pictures + "/" + one.Way + ".svg"); err != nil || !bytes.Contains(picture, []byte("kubelet.service")) {
			t.Errorf("%s: there is no picture of kubelet's start (%v)", one.Way, err)
		}
	}
	var text strings.Builder
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	return r
}

// expectEnter checks what a first boot without a reboot saves.
func expectEnter(t *testing.T, r *report) {
	t.Helper()
	reboot, enter := r.Results[0].Median, r.Results[1].Median
	if !r.SameKernel || reboot.PowerOns != 2 || enter.PowerOns != 1 {
		t.Errorf("power-ons %d and %d, want 2 and 1", reboot.PowerOns, enter.PowerOns)
	}
	if enter.LatterCPU >= reboot.LatterCPU {
		t.Errorf("after the commit it takes %.1f s of processor time, with a reboot %.1f s", enter.LatterCPU, reboot.LatterCPU)
	}
}

// expectToday checks what pivot saves in comparison with today's way.
func expectToday(t *testing.T, r *report) {
	t.Helper()
	today, early, kexec := r.Results[0].Median, r.Results[1].Median, r.Results[2].Median
	if today.PowerOns != 2 || early.PowerOns != 2 || kexec.PowerOns != 1 {
		t.Errorf("power-ons %d, %d, %d, want 2, 2, 1", today.PowerOns, early.PowerOns, kexec.PowerOns)
	}
	if least := r.Sizes.OSImage + r.Sizes.ToolImage; today.Fetched < least || early.Fetched >= least || early.Fetched < r.Sizes.OSImage {
		t.Errorf("fetched %d and %d bytes; the images have %+v", today.Fetched, early.Fetched, r.Sizes)
	}
	if early.CPU >= today.CPU {
		t.Errorf("pivot takes %.1f s of processor time, today's way %.1f s", early.CPU, today.CPU)
	}
}

// TestEmptyToolImage: a size with which no tool image can be made is refused before the images are built.
func TestEmptyToolImage(t *testing.T) {
	if err := command(t.Context(), []string{"-tool", "0"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "tool") {
		t.Errorf("-tool 0: %v", err)
	}
}

// bootsOfToday returns a first boot of today's way, with round numbers.
func bootsOfToday() sample {
	at := func(seconds int, text string) vm.SerialLine {
		l := vm.SerialLine{At: time.Duration(seconds) * time.Second, Text: text}
		if marked(text) {
			l.Usage = &vm.Usage{CPU: l.At / 2, Read: int64(seconds), Written: int64(10 * seconds)}
		}
		return l
	}
	end := func(seconds int) vm.Usage {
		return vm.Usage{CPU: time.Duration(seconds) * time.Second / 2, Read: int64(seconds), Written: int64(10 * seconds)}
	}
	return sample{boots: []*vm.BootResult{
		{Exit: vm.Rebooted, Duration: 100 * time.Second, Usage: end(100), Serial: []vm.SerialLine{
			at(1, kernelMark+"6.1"), at(3, initramfsMark), at(3, "Welcome to Guest 0 dracut-059-4 (Initramfs)!"), at(10, "Welcome to Guest A.1!"),
			at(20, "sh[1]: "+stepMark+"OS image: pull"), at(80, stepMark+"shutdown"),
		}},
		{Exit: vm.PoweredOff, Duration: 60 * time.Second, Usage: end(60), Serial: []vm.SerialLine{
			at(2, kernelMark+"6.1"), at(10, "Welcome to Guest B.2!"), at(30, kubeletMark), at(35, stepMark+"clean-up"), at(50, stepMark+endStep),
		}},
	}}
}

func TestAdd(t *testing.T) {
	s := bootsOfToday()
	if err := s.add(); err != nil {
		t.Fatal(err)
	}
	if s.Wall != 130 || s.CPU != 65 || s.Written != 1300 || s.Later != 330 || s.LatterWall != 50 || s.LatterCPU != 25 {
		t.Errorf("got %+v", s)
	}
	s.stepsOf()
	want := []step{{"start of boot 1", 20, 10}, {"OS image: pull", 60, 30}, {"shutdown", 20, 10}, {"start of boot 2", 30, 15}, {"clean-up", 15, 7.5}}
	if !slices.Equal(s.Steps, want) {
		t.Errorf("steps %+v, want %+v", s.Steps, want)
	}
	for n, reason := range []string{"when the system was committed", "kubelet did not start"} {
		s = bootsOfToday()
		s.boots[n].Serial = nil
		if err := s.add(); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("without the console of boot %d: %v", n+1, err)
		}
	}
}

// TestStepsOfPivot: pivot says several lines about a step.
func TestStepsOfPivot(t *testing.T) {
	at := func(seconds int, text string) vm.SerialLine {
		return vm.SerialLine{At: time.Duration(seconds) * time.Second, Text: text, Usage: &vm.Usage{CPU: time.Duration(seconds) * time.Second}}
	}
	s := sample{boots: []*vm.BootResult{{Duration: 9 * time.Second, Serial: []vm.SerialLine{
		at(2, "[    1.000000] pivot: read: a file"), at(3, "pivot: pull: 1%"), at(4, "pivot: pull: 99%"), at(7, kubeletMark),
	}}}}
	s.stepsOf()
	if want := []step{{"start of boot 1", 2, 2}, {"read", 1, 1}, {"pull", 4, 4}}; !slices.Equal(s.Steps, want) {
		t.Errorf("steps %+v, want %+v", s.Steps, want)
	}
	for _, line := range s.boots[0].Serial {
		if !marked(line.Text) {
			t.Errorf("%q is not marked", line.Text)
		}
	}
}

func TestPictureOfToday(t *testing.T) {
	s := bootsOfToday()
	picture, err := s.picture(way{today: true})
	if err != nil {
		t.Fatal(err)
	}
	// From the first kernel's start, a second after power-on.
	for _, bar := range []string{`data-name="kernel"`, `data-name="initramfs" data-begin="2.000" data-end="9.000"`, `data-name="OS image: pull" data-begin="19`, `data-name="shutdown"`, `data-name="kubelet.service" data-begin="129`} {
		if !bytes.Contains(picture, []byte(bar)) {
			t.Errorf("the picture has no %s:\n%s", bar, picture)
		}
	}
}

func TestPrint(t *testing.T) {
	of := func(wall float64) []sample {
		at := func(wall float64) sample {
			return sample{Wall: wall, CPU: wall, LatterWall: wall - 50, LatterCPU: wall - 80, PowerOns: 2}
		}
		return []sample{at(wall), at(wall + 50), at(wall - 50)}
	}
	r := report{Rounds: 3, Results: []result{{Way: todayName, Samples: of(200)}, {Way: "pivot-system", Samples: of(100), Targets: []target{{todayName, whole, 0.6}}},
		{Way: rebootName, Samples: of(180), Targets: []target{{todayName, whole, 0.45}}},
		{Way: enterName, Samples: of(90), Targets: []target{{rebootName, whole, 0.8}, {rebootName, latter, 0.6}, {kexecName, whole, 0.1}}},
	}}
	for n := range r.Results {
		r.Results[n].Median = medians(r.Results[n].Samples)
	}
	var text strings.Builder
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"200.0 (150.0-250.0)", "0.500",
		"pivot-system takes at most 0.60 of the time of today from power-on to kubelet: 0.500, met",
		"pivot-initramfs takes at most 0.45 of the time of today from power-on to kubelet: 0.900, MISSED",
		"pivot-enter takes at most 0.80 of the time of pivot-initramfs from power-on to kubelet: 0.500, met",
		"pivot-enter takes at most 0.60 of the time of pivot-initramfs from commit to kubelet: 0.308, met; of its processor time: 0.100",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "the time of pivot-kexec") {
		t.Errorf("a target relative to what was not measured:\n%s", text.String())
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"-ways", "none"}, {"-rounds", "0"}, {"-o", "xml"}, {"-tool", "many"}, {"more"}, {"-box", "-ways", "today," + rebootName}} {
		if err := command(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
