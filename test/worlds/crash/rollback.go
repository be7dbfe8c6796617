package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/day2"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// returning is a machine on which the second MachineConfig is applied and then rolled back.
type returning struct {
	Asked   bool // the second MachineConfig has arrived, and the administrator wants to go back
	Reverts bool // the command was repeated before the reboot: it reverts the rollback
	Detours int  // more boots, each after a crash in which the first system has come up while it was reverted
	Hasty   bool // see DefaultBeforeJournal
	Newest  bool // see JudgedByNewest

	newest pivot.Target // of the second MachineConfig, for JudgedByNewest
}

// RolledBack is the machine of Applied, and its administrator returns to the first MachineConfig once
// the second one has arrived. After a crash the administrator repeats the command, unless the
// machine runs the first system.
func RolledBack(repo string) Variant {
	return func(m *Machine) { m.applying, m.returning = &applying{Repo: repo}, &returning{} }
}

// DefaultBeforeJournal is a program broken on purpose: it makes the previous deployment the default
// before the journal says so. It needs the variant RolledBack.
func DefaultBeforeJournal(m *Machine) { m.returning.Hasty = true }

// JudgedByNewest is a program broken on purpose: after a rollback, the machine is judged by the
// newest MachineConfig, and not by the one that the previous deployment records. It needs the variant
// RolledBack.
func JudgedByNewest(m *Machine) { m.returning.Newest = true }

// driftOfA is what differs in the first system from its MachineConfig. That verify says so shows that
// it compares entries and units with that MachineConfig.
var driftOfA = []string{"file /etc/mine: differs", "link " + wants + "by-hand.service: missing"}

// missingOf returns how differences begin that verify names while a system runs and is judged by the
// other MachineConfig, that of a commit. The links of units are known only in the system of its image.
func missingOf(commit string) []string {
	argument := map[string]string{commitA: "first=1", commitB: "nosmt"}[commit]
	return []string{"kernel argument " + argument + ":", "file /etc/app/conf: differs"}
}

// liveRollback powers the machine on until the second MachineConfig is applied and the machine is back
// at the first. It checks, in addition to the promises of an apply:
//
//   - once the first system runs again, verify compares it with the MachineConfig that it records. If a repeated
//     command was about to revert the rollback, it says that this is not the second one, and the administrator tries
//     both ways;
//   - while the second one still runs, verify compares it with its own MachineConfig. After a crash between the journal
//     and the next boot, it says that this is not the first;
//   - in the end the first system can be repaired from its record, and the second one is complete.
func (m *Machine) liveRollback() error {
	if err := m.untilOver(3, m.applyAndReturn); err != nil {
		return err
	}
	return m.returned()
}

// applyAndReturn does the administrator's next step.
func (m *Machine) applyAndReturn(ctx context.Context) (over bool, err error) {
	if !m.returning.Asked {
		changed, err := m.runApply(ctx)
		if err == nil && !changed {
			m.returning.Asked, err = true, m.arrivedAndVerified()
		}
		return false, err
	}
	target, err := m.judged()
	if err != nil || m.runs(commitA) && target == commitA {
		return err == nil, err
	}
	if m.runs(commitA) {
		m.returning.Detours += 2
	}
	next, err := m.next()
	if err != nil {
		return false, err
	}
	m.returning.Reverts = next.Path != m.root
	m.key = true
	defer func() { m.key = false }()
	r := day2.Rollback{Machine: m.parts(), Reboot: true}
	return false, r.Run(ctx)
}

// judged checks what the running system is judged by since the administrator wants to go back. It
// returns the commit of that target.
func (m *Machine) judged() (target string, err error) {
	parts := m.parts()
	differences, err := parts.Verify(context.Background())
	if err != nil {
		return "", err
	}
	target = parts.Progress.Content.Target.Image.Commit
	switch {
	case m.runs(target) && target == commitA:
		return target, m.verified(driftOfA...)
	case m.runs(target):
		return target, m.verified()
	case m.runs(commitA) && !m.returning.Reverts:
		return target, fmt.Errorf("the first system runs again, and is judged by %.1s: %q", target, pivot.Texts(differences))
	}
	for _, want := range missingOf(target) {
		if !slices.ContainsFunc(differences, func(d pivot.Difference) bool { return strings.HasPrefix(d.Message, want) }) {
			return target, fmt.Errorf("the running system is judged by %.1s, and verify does not say %q: %q", target, want, pivot.Texts(differences))
		}
	}
	return target, nil
}

// returned checks the machine after the rollback.
func (m *Machine) returned() error {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	if err != nil {
		return err
	}
	if len(all) != 2 || all[0].Path != m.root {
		return fmt.Errorf("%d systems, the default is %.1s", len(all), all[0].Checksum)
	}
	return errors.Join(m.repairable(), m.noCopiesLeft())
}

// repairable checks that a repair would restore exactly what differs from the record of the running
// system.
func (m *Machine) repairable() error {
	repair := day2.Apply{Machine: m.parts(), Repair: true, Unsupported: machineconfig.Warn}
	plan, err := repair.Plan(context.Background(), day2.RunOptions{})
	if err != nil {
		return err
	}
	var restored []string
	for _, change := range plan.Entries {
		restored = append(restored, change.String())
	}
	if !slices.Equal(restored, driftOfA) || plan.Kargs.Changed || plan.Image.Changed {
		return fmt.Errorf("a repair would change %q, arguments: %v, image: %v", restored, plan.Kargs.Changed, plan.Image.Changed)
	}
	return nil
}

// detours returns how many boots the life has more.
func (m *Machine) detours() int {
	if m.returning == nil {
		return 0
	}
	return m.returning.Detours
}

// hastyDefault makes the other deployment the default, for DefaultBeforeJournal.
func (m *Machine) hastyDefault() error {
	if m.returning == nil || !m.returning.Hasty {
		return nil
	}
	return m.effect("set default", nil, func() error { return m.setDefault("1") })
}

// judgeByNewest replaces the target in the journal before the reboot of the rollback, for
// JudgedByNewest.
func (m *Machine) judgeByNewest() error {
	if m.returning == nil || !m.returning.Newest {
		return nil
	}
	journal := m.parts().Progress.Journal
	r, err := journal.Load()
	if err != nil {
		return err
	}
	if !m.returning.Asked { // the reboot of the apply
		m.returning.newest = r.Target
		return nil
	}
	r.Target = m.returning.newest
	return journal.Save(r)
}
