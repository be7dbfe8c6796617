package authored_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/kargs"
	"machine-pivot/test/tools/sample"
)

func rules() authored.Rules { return authored.Rules{KernelArguments: kargs.DefaultPolicy()} }

// Each file of testdata/operator has its report beside it. UPDATE_GOLDEN=1 rewrites the reports.
func TestDecodeGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/operator/*[nl]")
	if err != nil || len(files) < 40 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		all, report := authored.Decode(name, data, rules())
		got := report.String() + "\n"
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file+".report", []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file + ".report")
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: report is\n%s\nwant\n%s", file, got, want)
		}
		if strings.HasPrefix(name, "good-") && (report.Failed() || len(all) == 0) {
			t.Errorf("%s: %d objects\n%s", file, len(all), report)
		}
	}
}

func TestDecodeTooLarge(t *testing.T) {
	_, report := authored.Decode("big", bytes.Repeat([]byte("#\n"), document.MaxSize), rules())
	if len(report) != 1 || !report.Failed() {
		t.Error(report)
	}
}

// An input that consists of problems gives a report of limited size, quickly.
func TestDecodeManyProblems(t *testing.T) {
	for _, item := range []string{"7,", "{},"} {
		in := `{"kind":"MachineConfig","metadata":{"name":"a"},"spec":{"kernelArguments":[` + strings.Repeat(item, sample.Rounds(200_000)) + `7]}}`
		for _, file := range []string{"a.json", "a.yaml"} {
			if _, report := authored.Decode(file, []byte(in), rules()); len(report) > 510 || !report.Failed() {
				t.Errorf("%d problems", len(report))
			}
		}
	}
}

func TestSameNames(t *testing.T) {
	in := object("worker", "a", "{}")
	dir := tree(t, map[string]string{"one.yaml": in, "two.yaml": in})
	_, report, err := authored.Read(t.Context(), []string{dir}, nil, rules())
	const want = `two.yaml: error: $.metadata.name: the name "a" is that of another MachineConfig too, in `
	if got := report.String(); err != nil || !strings.Contains(got, want) || !strings.HasSuffix(got, "one.yaml") || len(report) != 1 {
		t.Errorf("%s (%v)\nwant %s", got, err, want)
	}
}

func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob("testdata/operator/*[nl]")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) < 10_000 && filepath.Ext(file) != ".report" {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		all, report := authored.Decode("f.yaml", in, rules())
		for _, p := range report {
			if strings.ContainsAny(p.String(), "\n\x1b") {
				t.Errorf("%q", p.String())
			}
		}
		if report.Failed() {
			return
		}
		// Accepted MachineConfigs survive a round trip.
		for _, mc := range all {
			text, err := mc.YAML()
			if err != nil {
				t.Fatal(err)
			}
			again, report := authored.Decode("again.yaml", text, rules())
			if len(again) != 1 || report.Failed() {
				t.Fatalf("%s\n%s", text, report)
			}
			if second, _ := again[0].YAML(); !bytes.Equal(second, text) {
				t.Errorf("%s\nagain\n%s", text, second)
			}
		}
	})
}

// TestUnknownMember: an unknown member in user input is an error, because it may be a typo.
func TestUnknownMember(t *testing.T) {
	const written = `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"rendered-worker-0"},
"spec":{"osImageStream":{"name":"rhel-10"},"kernelArgs":["quiet"],"later":null,"kernelArguments":["nosmt"]}}`
	if _, report := authored.Decode("a.json", []byte(written), rules()); strings.Count(report.String(), "error: $.spec.") != 3 {
		t.Errorf("%s", report)
	}
}
