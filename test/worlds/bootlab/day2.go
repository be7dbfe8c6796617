package bootlab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/test/worlds/vm"
)

// day2Dir is the directory of Day2's files on a machine.
const day2Dir = "/var/lib/day2"

// Day2 returns the files of a machine that runs a command on each boot, as an administrator would.
// The kernel argument "typed.WORD" selects the command typed[WORD]. Before the command, the machine
// runs the script says, a SayingScript, to report its state.
// The MachineConfigs are in the working directory of both, as NAME.json.
func Day2(says string, typed map[string]string, configs ...Config) ([]vm.TreeFile, error) {
	files := []vm.TreeFile{SayingScript(day2Dir+"/says", says)}
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

// SayingScript returns a shell script that can report with "say KEY VALUE", for Day2Said.
func SayingScript(path, commands string) vm.TreeFile {
	const say = "#!/bin/sh\nsay() { echo \"@@day2 $*\" | tee /dev/ttyS1 >/dev/console; }\n"
	return vm.TreeFile{Path: path, Mode: 0o755, Content: []byte(say + commands)}
}

// Day2Unit is a unit that a MachineConfig may enable. It does nothing, and it is active before Day2's
// command runs.
const Day2Unit = `[Unit]
Before=systemd-networkd-wait-online.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
`

// TypedOn returns the options of a boot that runs Day2's command for a word.
func TypedOn(word string) vm.BootOptions {
	return vm.BootOptions{ExtraArgs: []string{"typed." + word}}
}

// Day2Said returns what a machine reported in a boot, with the last value of each key.
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
