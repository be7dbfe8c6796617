package booted_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/api"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machine"
	"machine-pivot/test/suites/booted"
	"machine-pivot/test/tools/schema"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestResult: each command that changes the machine writes one document about that: for a change of the running system,
// a commit, a reboot, and a change that a service refuses.
func TestResult(t *testing.T) {
	h := hostdir.New(t)
	programs := script.Programs(t)
	if err := os.WriteFile(filepath.Join(programs, "systemctl"), []byte(systemctl), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Write("/etc/pivot/disruption.yaml", []byte("files: [{path: /etc/app.conf, actions: [{type: Drain}, {type: Reload, reload: {serviceName: app.service}}]}]\n"))
	m := booted.New(t.TempDir(), h.Physical(), programs)
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	run := func(command string) (out string, status int) {
		t.Helper()
		out, status, err := m.Run(command)
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return out, status
	}
	m.Stopping = func() { // the document is whole
		for range 6000 {
			if text, err := os.ReadFile(filepath.Join(m.Home(), "result")); err == nil && strings.HasSuffix(string(text), "\n}\n") {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Error("no result before the reboot")
	}
	run("cat >/var/home/config <<'EOF'\n" + liveConfig + "EOF\n" + "for n in one two; do (echo \"metadata: {name: mc-$n}\"; sed s/CONTENT/$n/ config) >$n.yaml; done\n" +
		"(echo 'metadata: {name: mc-args}'; echo 'spec: {kernelArguments: [a=1]}') >args.yaml")
	type want struct {
		status  int
		outcome machine.Outcome
		changed bool
		pending bool
		drain   bool
		actions []disruption.Action
		name    string // of the MachineConfig
		class   string
	}
	reload := []disruption.Action{{Type: disruption.Reload, Service: "app.service"}}
	for _, c := range []struct {
		command string
		want    want
	}{
		{"pivot apply -o json one.yaml", want{0, machine.OutcomeLive, true, false, true, reload, "mc-one", ""}},
		{"pivot apply -o json one.yaml", want{0, machine.OutcomeUnchanged, false, false, false, nil, "mc-one", ""}},
		{"touch broken; pivot apply -o json two.yaml; status=$?; rm broken; exit $status", want{78, machine.OutcomeFailed, false, false, true, append(slices.Clone(reload), reload...), "mc-two", "refused"}},
		{"pivot apply -o json --finish", want{0, machine.OutcomeUnchanged, false, false, false, nil, "", ""}},
		{"pivot rebase -o json --append-karg b=1", want{0, machine.OutcomeCommitted, true, true, true, nil, "", ""}},
		{"pivot apply -o json args.yaml", want{0, machine.OutcomeCommitted, true, true, true, nil, "mc-args", ""}},
		{"pivot apply -o json args.yaml", want{0, machine.OutcomeCommitted, false, true, true, nil, "mc-args", ""}},
		{"pivot apply -o json args.yaml -r >result; echo not reached", want{0, machine.OutcomeRebooting, false, true, true, nil, "mc-args", ""}},
		{"pivot verify", want{}},
		{"pivot apply -o json two.yaml", want{0, machine.OutcomeCommitted, true, true, true, nil, "mc-two", ""}},
	} {
		out, status := run("exec 2>log; " + c.command)
		if status != c.want.status || strings.Contains(out, "not reached") {
			log, _ := run("cat log")
			t.Fatalf("%s: status %d\n%s%s", c.command, status, out, log)
		}
		if c.want.outcome == "" {
			continue
		}
		if strings.Contains(c.command, ">result") {
			out, _ = run("cat result")
		}
		if err := schema.Validate(api.Result, []byte(out)); err != nil {
			t.Fatalf("%s: %v\n%s", c.command, err, out)
		}
		var r machine.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		got := want{status, r.Outcome, r.Changed, r.RebootPending, r.Drain.Wanted, r.Actions, "", ""}
		if r.MachineConfig != nil {
			got.name = r.MachineConfig.Name
		}
		if r.Error != nil {
			got.class = r.Error.Class
		}
		same := slices.Equal(got.actions, c.want.actions)
		got.actions, c.want.actions = nil, nil
		if got.outcome != c.want.outcome || got.changed != c.want.changed || !same || got.pending != c.want.pending || got.drain != c.want.drain || got.name != c.want.name || got.class != c.want.class {
			t.Errorf("%s: %+v, want %+v:\n%s", c.command, got, c.want, out)
		}
	}
}
