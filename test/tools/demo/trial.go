package main

import (
	"context"
	"strings"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// trial shows how the machine of the first act tries the next image, and returns by itself.
func (s *show) trial(ctx context.Context) error { return s.act(ctx, trialSteps()) }

func trialSteps() []step {
	return []step{
		{"a trial of the next image, with a check that fails", "try", vm.Rebooted, func(*bootlab.Claims, map[string]string, map[string]string) {}},
		{"the new system on trial", "stay", vm.Rebooted, func(*bootlab.Claims, map[string]string, map[string]string) {}},
		{"the old system again, by itself", "closed", vm.PoweredOff, cameBack},
	}
}

func cameBack(claims *bootlab.Claims, said, before map[string]string) {
	claims.Add(before["image"] == "1" && said["image"] == "1", "the image of before is booted")
	claims.Add(strings.Contains(said["error"], "failed its trial"), "pivot status says why: %s", said["error"])
}
