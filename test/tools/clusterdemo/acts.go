package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
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

// base is the pool's first MachineConfig. The machines have its files, but nobody has given it to them.
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
	ends    ending
}

// ending is what an act ends with.
type ending int

const (
	arrives ending = iota // each node has what it was given
	waits                 // nobody has said that the nodes are to be taken in
	stops                 // the first node has failed
)

func acts() []act {
	return []act{
		{title: "power on: a cluster has two nodes, which somebody else has set up", boots: 1, ends: waits},
		{title: "kubectl apply: a PoolRollout with adopt: true takes them in", do: adopt},
		{title: "kubectl apply: a MachineConfig with an image that the registry does not have", do: applyBroken, ends: stops},
		{title: "kubectl apply: the corrected MachineConfig, with another image, a kernel argument and a file", do: applyMachineConfig, boots: 1, changed: true},
		{title: "kubectl apply: a ContainerRuntimeConfig. The machines have a rule that CRI-O reloads its settings", do: applyContainerRuntime, changed: true, limited: true},
		{title: "kubectl delete: both are taken back", do: takeBack, boots: 1},
	}
}

func adopt(d *director) { d.world.Adopt() }

// applyBroken names an image with a digest that differs in its last digits.
func applyBroken(d *director) {
	image := d.images.next
	d.world.Apply(bootlab.Config{Name: "50-demo", Image: image[:len(image)-4] + "0000", Kargs: []string{argument}, Files: map[string]string{greeting: "good day"}})
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
			return d.world.Delete(ctx, &api.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-demo"}})
		},
		func() error {
			return d.world.Delete(ctx, &api.ContainerRuntimeConfig{ObjectMeta: metav1.ObjectMeta{Name: "pids"}})
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
func (a act) claim(claims *bootlab.Claims, ended bool, most int) {
	claims.Add(ended, "%s", map[ending]string{
		arrives: "each node has the pool's MachineConfig, which its agent has proven",
		waits:   "the pool says that its nodes are not taken in, and has given nothing to any",
		stops:   "the rollout has stopped: the pool names the node that has failed, and the other one has not begun",
	}[a.ends])
	claims.Add(most <= 1, "no more than one node was out at a time")
}

// claimOf prints what a node has after the act.
func (a act) claimOf(claims *bootlab.Claims, node string, of images, s saw) {
	booted := "no reboot"
	if a.boots > 0 {
		booted = "booted once"
	}
	claims.Add(s.boots == a.boots, "%s: %s", node, booted)
	if a.ends == waits { // its agent does not report yet
		claims.Add(s.image == "", "%s: nobody has taken it in", node)
	} else if a.changed {
		claims.Add(s.image == of.next && s.proven, "%s runs the MachineConfig's image", node)
	} else {
		claims.Add(s.image == of.first && (s.proven || a.ends == stops), "%s runs the image of its first boot", node)
	}
	if a.changed {
		claims.Add(s.argument == argument, "%s: kernel argument %s", node, argument)
		claims.Add(s.file == "good day", "%s: %s says %q", node, greeting, "good day")
	} else {
		claims.Add(s.argument == "", "%s: no kernel argument %s", node, argument)
		claims.Add(s.file == "hello", "%s: %s says %q", node, greeting, "hello")
	}
	if a.limited {
		claims.Add(s.limit == limit, "%s: CRI-O has read %s", node, limit)
	} else {
		claims.Add(s.limit == "", "%s: CRI-O has its own limit", node)
	}
}
