package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/test/vm"
)

// Where a machine has what Day2 gives it.
const day2Dir = "/var/lib/day2"

// Day2 are the files of a machine that does on a boot what somebody would type, as nobody
// is there to type it: a command of typed, by the word behind "typed." on the kernel command
// line. Before that the machine says what it is, by the script says, whose command
// "say KEY VALUE" Day2Said reads. The MachineConfigs are in the working directory of both.
func Day2(says string, typed map[string]string, configs ...Config) ([]vm.TreeFile, error) {
	script := "#!/bin/sh\nsay() { echo \"@@day2 $*\" | tee /dev/ttyS1 >/dev/console; }\n" + says
	files := []vm.TreeFile{{Path: day2Dir + "/says", Mode: 0o755, Content: []byte(script)}}
	for _, c := range configs {
		config, err := c.JSON()
		if err != nil {
			return nil, err
		}
		files = append(files, vm.TreeFile{Path: day2Dir + "/" + c.Name + ".json", Mode: 0o600, Content: config})
	}
	for _, word := range slices.Sorted(maps.Keys(typed)) {
		command := fmt.Sprintf("cd %s; ./says; %s", day2Dir, typed[word])
		files = append(files, Typed("day2-"+word, command, "KernelCommandLine=typed."+word)...)
	}
	return files, nil
}

// Day2Unit is a unit that a MachineConfig may enable: it does nothing, and is active before
// something is typed.
const Day2Unit = `[Unit]
Before=systemd-networkd-wait-online.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
`

// TypedOn is a power-on on which the command of a word is typed.
func TypedOn(word string) vm.BootOptions {
	return vm.BootOptions{ExtraArgs: []string{"typed." + word}}
}

// Day2Said is what a machine said of itself, with the last value of each key.
func Day2Said(b *vm.BootResult) map[string]string {
	said := map[string]string{}
	for _, line := range b.Reported {
		if text, found := strings.CutPrefix(line, "@@day2 "); found {
			key, value, _ := strings.Cut(strings.TrimSpace(text), " ")
			said[key] = value
		}
	}
	return said
}
