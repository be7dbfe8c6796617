package main

import (
	"context"
	"io"
	"strings"

	"machine-pivot/test/worlds/lab"
	"machine-pivot/test/worlds/vm"
)

// The second act continues with the machine of the first: it applies MachineConfigs to a running
// machine. One changes a file that needs no reboot, one changes everything else, and finally the
// machine is rolled back.

// What the MachineConfigs of the second act change.
const (
	greeting = "/etc/demo/greeting"
	argument = "demo.day2"
	newUnit  = "demo-new.service"
)

// service reads the file when it starts and reloads. It writes its PID and what it has read to
// /run. It starts before the report, so that systemd's messages about it do not interrupt the
// report.
const service = `[Unit]
Before=boot-report.service
[Service]
ExecStart=/bin/sh -c 'trap read_it HUP; read_it() { echo "$$$$ read $$(cat ` + greeting + `)" >/run/demo; }; read_it; while :; do sleep 0.2; done'
ExecReload=/bin/sh -c 'kill -HUP $MAINPID'
[Install]
WantedBy=multi-user.target
`

// rules require only a reload for a change of the file.
const rules = `files:
- path: /etc/demo
  actions: [{type: Reload, reload: {serviceName: demo.service}}]
`

const reportScript = `say image $(cat /usr/share/openshift/metadata)
say file $(cat ` + greeting + ` 2>/dev/null)
say service $(cat /run/demo)
say process $(systemctl show -P MainPID demo.service)
say unit $(systemctl is-active ` + newUnit + `)
say argument $(grep -o ` + argument + ` /proc/cmdline)
say verify $(pivot verify >/dev/null && echo same || echo differs)
`

// dayTwoFiles returns the files for the second act. first is what the first act's MachineConfig
// asks for; image is the next image.
func dayTwoFiles(first lab.Want, image string) ([]vm.TreeFile, error) {
	live := lab.Config{Name: "live", Image: first.Image, Kargs: first.Kargs, Files: map[string]string{greeting: "hello"}}
	whole := lab.Config{
		Name: "whole", Image: image, Kargs: append([]string{argument}, first.Kargs...),
		Units: []lab.Unit{{Name: newUnit, Enabled: true, Contents: lab.Day2Unit}},
	}
	files, err := lab.Day2(reportScript, map[string]string{
		// The last report counts, which is the one after the change without a reboot.
		"whole": "pivot apply live.json; ./says; pivot apply -r whole.json", "back": "pivot rollback -r", "nothing": "true",
	}, live, whole)
	const units = "/etc/systemd/system/"
	return append(files,
		vm.TreeFile{Path: "/etc/pivot/disruption.yaml", Mode: 0o644, Content: []byte(rules)},
		vm.TreeFile{Path: units + "demo.service", Mode: 0o644, Content: []byte(service)},
		vm.TreeFile{Path: units + "multi-user.target.wants/demo.service", Symlink: "../demo.service"},
	), err
}

// dayTwoStep is one power-on of the second act.
type dayTwoStep struct {
	title, typed string
	end          vm.Reason
	claim        func(claims *lab.Claims, said, before map[string]string) // before is the report of the act's first step
}

func dayTwoSteps() []dayTwoStep {
	return []dayTwoStep{
		{"day 2: one MachineConfig changes a file, another one image, argument, unit and file", "whole", vm.Rebooted, changedLive},
		{"after one reboot: all of the second MachineConfig; then pivot rollback", "back", vm.Rebooted, changedWhole},
		{"after one reboot more: the system from before, with what it had", "nothing", vm.PoweredOff, wentBack},
	}
}

func changedLive(claims *lab.Claims, said, _ map[string]string) {
	claims.Add(said["file"] == "hello", "%s is there, without a reboot", greeting)
	claims.Add(strings.HasSuffix(said["service"], " read hello"), "the service that reads it was reloaded")
	claims.Add(said["process"] != "" && said["service"] == said["process"]+" read hello", "it is the process from before")
}

func changedWhole(claims *lab.Claims, said, before map[string]string) {
	claims.Add(said["image"] == "2" && before["image"] == "1", "the next version of the image is booted")
	claims.Add(said["argument"] == argument && before["argument"] == "", "kernel argument %s", argument)
	claims.Add(said["unit"] == "active" && before["unit"] == "inactive", "%s is enabled, and runs", newUnit)
	claims.Add(said["file"] == "", "%s, which it does not name, is gone", greeting)
	claims.Add(said["verify"] == "same", "pivot verify finds no difference")
}

func wentBack(claims *lab.Claims, said, before map[string]string) {
	for _, key := range []string{"image", "argument", "unit", "file"} {
		claims.Add(said[key] == before[key], "%s as before", key)
	}
	claims.Add(said["verify"] == "same", "pivot verify finds no difference from the MachineConfig of then")
}

// dayTwo runs the second act.
func dayTwo(ctx context.Context, w io.Writer, machine *vm.Machine) error {
	claims := &lab.Claims{To: w}
	var before map[string]string
	for _, step := range dayTwoSteps() {
		heading(w, step.title)
		boot, _, err := live(ctx, w, machine, lab.TypedOn(step.typed))
		if err != nil {
			return err
		}
		said := lab.Day2Said(boot)
		if before == nil {
			before = said
		}
		claims.Add(boot.Exit == step.end, "the machine %s after %.0f s", boot.Exit, boot.Duration.Seconds())
		step.claim(claims, said, before)
		if err := claims.Err(); err != nil {
			return err // the next steps depend on this one
		}
	}
	return nil
}
