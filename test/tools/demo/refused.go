package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"machine-pivot/firstboot"
	"machine-pivot/test/box"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// The mistake of the second act's MachineConfig, which only the image can show: it has no such user.
const (
	ownedFile = "/etc/demo/owned"
	wrongUser = "daemoon"
	rightUser = "daemon"
)

// held is what pivot says on each console when a first boot has failed.
const held = "the first boot is not complete: kubelet is held"

// refused shows a first boot that fails, and what an operator does about it while the machine runs.
func (s *show) refused(ctx context.Context) error {
	heading(s.w, "another machine, with a mistake in its MachineConfig: a user that the image does not have")
	config, err := withMistake(s.want)
	if err != nil {
		return err
	}
	machine, inside, err := s.newMachine(ctx, "refused", bootlab.Setup{Encapsulated: config})
	if err != nil {
		return err
	}
	operator := s.operate(ctx, inside)
	first, _, err := s.live(ctx, machine, vm.BootOptions{ExtraArgs: []string{"report.stay"}, OnLine: operator.line})
	if err = errors.Join(err, operator.wait()); err != nil {
		return err
	}
	second, _, err := s.live(ctx, machine, vm.BootOptions{})
	if err != nil {
		return err
	}
	r, err := second.Report()
	if err != nil {
		return err
	}
	s.claims.Add(strings.Contains(operator.status, wrongUser), "it was refused, and pivot status said why")
	s.claims.Add(strings.Contains(operator.status, "\nhint "), "and what to do")
	s.claims.Add(operator.kubelet != "active", "kubelet was held meanwhile: %s", operator.kubelet)
	s.claims.Add(first.Exit == vm.Rebooted, "after the correction the machine %s", first.Exit)
	// Manifests are read again.
	s.claims.Add(operator.again < operator.pulled/100, "it went on without pulling again: %d KB from the registry before, %d KB after it", operator.pulled>>10, operator.again>>10)
	s.claims.Add(r.Version == "B.2" && r.Status.Phase == "done", "version %s is booted, pivot status: %s", r.Version, r.Status.Phase)
	return s.claims.Err()
}

// withMistake returns the encapsulated MachineConfig of a target, with one file more, of the wrong user.
func withMistake(want bootlab.Want) ([]byte, error) {
	text, err := want.Encapsulated()
	if err != nil {
		return nil, err
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	storage := config["spec"].(map[string]any)["config"].(map[string]any)["storage"].(map[string]any)
	storage["files"] = append(storage["files"].([]any), map[string]any{
		"path": ownedFile, "mode": 0o600, "user": map[string]string{"name": wrongUser}, "contents": map[string]string{"source": "data:,mine"},
	})
	return json.Marshal(config)
}

// operator is who corrects the mistake.
type operator struct {
	*show
	inside *box.Box
	failed chan struct{} // closed when the first boot has failed
	ended  chan error
	said   bool

	status, kubelet string // what commands have printed
	pulled, again   int64  // bytes from the registry until the correction, and after it
}

// operate starts an operator, who waits for the failure.
func (s *show) operate(ctx context.Context, inside *box.Box) *operator {
	o := &operator{show: s, inside: inside, failed: make(chan struct{}), ended: make(chan error, 1)}
	go func() { o.ended <- o.correct(ctx) }()
	return o
}

// line watches the console.
func (o *operator) line(text string) {
	if !o.said && strings.Contains(text, held) {
		o.said = true
		close(o.failed)
	}
}

// wait waits for the operator after the end of the boot.
func (o *operator) wait() error {
	if !o.said {
		return fmt.Errorf("the console did not say %q", held)
	}
	return <-o.ended
}

// correct does what docs/failed.md says.
func (o *operator) correct(ctx context.Context) (err error) {
	before := o.world.Registry.BytesServed()
	select {
	case <-o.failed:
	case <-ctx.Done():
		return ctx.Err()
	}
	if o.status, err = o.types(ctx, "pivot status"); err != nil {
		return err
	}
	if o.kubelet, err = o.types(ctx, "systemctl is-active kubelet || :"); err != nil {
		return err
	}
	if _, err = o.types(ctx, fmt.Sprintf("sed -i s/%s/%s/ %s", wrongUser, rightUser, firstboot.EncapsulatedPath)); err != nil {
		return err
	}
	corrected := o.world.Registry.BytesServed()
	_, _ = o.types(ctx, "systemctl restart pivot-firstboot") // it ends with the machine
	o.pulled, o.again = corrected-before, o.world.Registry.BytesServed()-corrected
	return nil
}

// types runs a shell command in the box, and shows it with its output.
func (o *operator) types(ctx context.Context, command string) (string, error) {
	fmt.Fprintf(o.w, "          # %s\n", command)
	cmd, err := o.inside.Command(ctx, "sh", "-c", command)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Fprintf(o.w, "          %.150s\n", strings.TrimRight(line, "\n"))
	}
	return strings.TrimSpace(string(out)), err
}
