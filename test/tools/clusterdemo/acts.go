package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/objects"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// What the MachineConfigs are about.
const (
	greeting = "/etc/demo/greeting"
	argument = "demo.fleet"
	settings = "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit" // that a ContainerRuntimeConfig makes
	limit    = "pids_limit = 4096"
)

// base is the MachineConfig that the machines have from their first boot.
func base() bootlab.Config {
	return bootlab.Config{Name: "00-worker", Files: map[string]string{greeting: "hello"}}
}

// crio stands in for CRI-O: it reads its settings when it starts, and when it reloads.
const crio = `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'cat ` + settings + ` >/run/crio 2>/dev/null || :'
ExecReload=/bin/sh -c 'cat ` + settings + ` >/run/crio 2>/dev/null || :'
`

// rules require only a reload for a change of these settings.
const rules = `files:
- path: /etc/crio/crio.conf.d
  actions: [{type: Reload, reload: {serviceName: crio.service}}]
`

// files are on all machines.
func files() []vm.TreeFile {
	const units = "/etc/systemd/system/"
	return []vm.TreeFile{
		{Path: "/etc/pivot/disruption.yaml", Mode: 0o644, Content: []byte(rules)},
		{Path: units + "crio.service", Mode: 0o644, Content: []byte(crio)},
		{Path: units + "multi-user.target.wants/crio.service", Symlink: "../crio.service"},
	}
}

// look is a command that says what a machine has.
const look = `echo "$(grep -o ` + argument + ` /proc/cmdline);$(cat ` + greeting + `);$(grep -o pids_limit.* /run/crio)"`

// saw is what a look at a machine has found.
type saw struct {
	boots                        int // in the act
	image, argument, file, limit string
	proven                       bool
}

// images are the one of the first boot, and the one of the MachineConfig.
type images struct{ first, next string }

// act is a change of the cluster by an operator, and what all nodes have after it.
type act struct {
	title   string
	do      func(d *director) // nil: only the machines boot
	boots   int               // of each node
	changed bool              // the nodes have the MachineConfig of the demonstration
	limited bool              // and the ContainerRuntimeConfig
}

func acts() []act {
	return []act{
		{title: "power on: both machines boot, and join with the MachineConfig of their first boot", boots: 1},
		{"kubectl apply: a MachineConfig with another image, a kernel argument and a file", applyMachineConfig, 1, true, false},
		{"kubectl apply: a ContainerRuntimeConfig. The machines have a rule that CRI-O reloads its settings", applyContainerRuntime, 0, true, true},
		{"kubectl delete: both are taken back", takeBack, 1, false, false},
	}
}

func applyMachineConfig(d *director) {
	d.world.Apply(bootlab.Config{Name: "50-demo", Image: d.images.next, Kargs: []string{argument}, Files: map[string]string{greeting: "good day"}})
}

func applyContainerRuntime(d *director) {
	d.world.ApplyContainerRuntime("pids", map[string]any{"pidsLimit": 4096})
}

// takeBack pauses the pool meanwhile, so that both are taken back by one reboot.
func takeBack(d *director) {
	ctx := d.Context()
	for _, step := range []func() error{
		func() error { return d.world.Pause(ctx, true) },
		func() error {
			return d.world.Delete(ctx, &objects.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-demo"}})
		},
		func() error {
			return d.world.Delete(ctx, &objects.ContainerRuntimeConfig{ObjectMeta: metav1.ObjectMeta{Name: "pids"}})
		},
	} {
		if err := step(); err != nil {
			d.Fatal(err)
		}
	}
	d.world.Until(d, "both are taken out of the pool's MachineConfig", func() bool {
		d.show()
		return len(d.world.ReadPool(ctx).Spec.Configuration.Source) == 1
	})
	if err := d.world.Pause(ctx, false); err != nil {
		d.Fatal(err)
	}
}

// claim prints what holds for all nodes after the act. most is how many were out of service at a time so far.
func (a act) claim(claims *bootlab.Claims, arrived bool, most int) {
	claims.Add(arrived, "each node has the pool's MachineConfig, which its agent has proven")
	claims.Add(most <= 1, "no more than one node was out at a time")
}

// claimOf prints what a node has after the act.
func (a act) claimOf(claims *bootlab.Claims, node string, of images, s saw) {
	booted := "no reboot"
	if a.boots > 0 {
		booted = "booted once"
	}
	claims.Add(s.boots == a.boots, "%s: %s", node, booted)
	if a.changed {
		claims.Add(s.image == of.next && s.proven, "%s runs the MachineConfig's image", node)
		claims.Add(s.argument == argument, "%s: kernel argument %s", node, argument)
		claims.Add(s.file == "good day", "%s: %s says %q", node, greeting, "good day")
	} else {
		claims.Add(s.image == of.first && s.proven, "%s runs the image of its first boot", node)
		claims.Add(s.argument == "", "%s: no kernel argument %s", node, argument)
		claims.Add(s.file == "hello", "%s: %s says %q", node, greeting, "hello")
	}
	if a.limited {
		claims.Add(s.limit == limit, "%s: CRI-O has read %s", node, limit)
	} else {
		claims.Add(s.limit == "", "%s: CRI-O has its own limit", node)
	}
}
