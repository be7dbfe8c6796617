package main

import (
	"context"
	"strings"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// The last act continues with the machine of the first: it applies MachineConfigs to a running
// machine. One changes a file that needs no reboot, one changes everything else, and finally the
// machine is rolled back.

// What the MachineConfigs of the last act change.
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
say error $(pivot status | sed -n 's/^error *//p')
say verify $(pivot verify >/dev/null && echo same || echo differs)
`

// dayTwoFiles returns the files for the acts after the first. first is what the first act's MachineConfig
// asks for; image is the next image.
func dayTwoFiles(first bootlab.Want, image string) ([]vm.TreeFile, error) {
	live := bootlab.Config{Name: "live", Image: first.Image, Kargs: first.Kargs, Files: map[string]string{greeting: "hello"}}
	whole := bootlab.Config{
		Name: "whole", Image: image, Kargs: append([]string{argument}, first.Kargs...),
		Units: []bootlab.Unit{{Name: newUnit, Enabled: true, Contents: bootlab.Day2Unit}},
	}
	tried := bootlab.Config{Name: "tried", Image: image, Kargs: first.Kargs}
	files, err := bootlab.Day2(reportScript, map[string]string{
		"try":  "pivot apply --try=1s --confirm=auto --check false tried.json",
		"stay": "sleep infinity", // a box boots faster than a trial ends
		"back": "pivot rollback -r", "nothing": "true",
		// The old system may still be closing the trial.
		"closed": "while systemctl -q is-active pivot-trial.service; do sleep 0.2; done; ./says",
		// The last report counts, which is the one after the change without a reboot. A reload is over when the service
		// has its signal, not yet when it has read the file.
		"whole": `pivot apply live.json; timeout 20 sh -c "until grep -q hello /run/demo; do sleep 0.1; done" || :; ./says; pivot apply -r whole.json`,
	}, live, whole, tried)
	const units = "/etc/systemd/system/"
	return append(files,
		vm.TreeFile{Path: "/etc/pivot/disruption.yaml", Mode: 0o644, Content: []byte(rules)},
		vm.TreeFile{Path: units + "demo.service", Mode: 0o644, Content: []byte(service)},
		vm.TreeFile{Path: units + "multi-user.target.wants/demo.service", Symlink: "../demo.service"},
	), err
}

// step is one power-on of an act.
type step struct {
	title, typed string // typed: a word of dayTwoFiles; "": nothing
	end          vm.Reason
	claim        func(claims *bootlab.Claims, said, before map[string]string) // before is the report of the act's first step
}

func dayTwoSteps() []step {
	return []step{
		{"day 2: one MachineConfig changes a file, another one image, argument, unit and file", "whole", vm.Rebooted, changedLive},
		{"after one reboot: all of the second MachineConfig; then pivot rollback", "back", vm.Rebooted, changedWhole},
		{"after one reboot more: the system from before, with what it had", "nothing", vm.PoweredOff, wentBack},
	}
}

func changedLive(claims *bootlab.Claims, said, _ map[string]string) {
	claims.Add(said["file"] == "hello", "%s is there, without a reboot", greeting)
	claims.Add(strings.HasSuffix(said["service"], " read hello"), "the service that reads it was reloaded")
	claims.Add(said["process"] != "" && said["service"] == said["process"]+" read hello", "it is the process from before")
}

func changedWhole(claims *bootlab.Claims, said, before map[string]string) {
	claims.Add(said["image"] == "2" && before["image"] == "1", "the next version of the image is booted")
	claims.Add(said["argument"] == argument && before["argument"] == "", "kernel argument %s", argument)
	claims.Add(said["unit"] == "active" && before["unit"] == "inactive", "%s is enabled, and runs", newUnit)
	claims.Add(said["file"] == "", "%s, which it does not name, is gone", greeting)
	claims.Add(said["verify"] == "same", "pivot verify finds no difference")
}

func wentBack(claims *bootlab.Claims, said, before map[string]string) {
	for _, key := range []string{"image", "argument", "unit", "file"} {
		claims.Add(said[key] == before[key], "%s as before", key)
	}
	claims.Add(said["verify"] == "same", "pivot verify finds no difference from the MachineConfig of then")
}

// dayTwo changes the machine of the first act, and takes the change back.
func (s *show) dayTwo(ctx context.Context) error { return s.act(ctx, dayTwoSteps()) }

// act runs the steps of an act on the machine of the first one.
func (s *show) act(ctx context.Context, steps []step) error {
	var before map[string]string
	for _, step := range steps {
		heading(s.w, step.title)
		o := vm.BootOptions{}
		if step.typed != "" {
			o = bootlab.TypedOn(step.typed)
		}
		boot, _, err := s.live(ctx, s.machine, o)
		if err != nil {
			return err
		}
		said := bootlab.Day2Said(boot)
		if before == nil {
			before = said
		}
		s.claims.Add(boot.Exit == step.end, "the machine %s after %.0f s", boot.Exit, boot.Duration.Seconds())
		step.claim(s.claims, said, before)
		if err := s.claims.Err(); err != nil {
			return err // the next steps depend on this one
		}
	}
	return nil
}
