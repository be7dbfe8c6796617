package firstboot

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/fault"
)

// checkComposefs refuses an image that boots only from an image of composefs, where
// this system's ostree cannot make one: it would be deployed without, and its
// initramfs would stop (ostree-prepare-root(1), composefs.enabled).
func (m *Machine) checkComposefs(ctx context.Context) error {
	out, err := m.Host.Run(ctx, "ostree", "--version")
	if err != nil {
		return fmt.Errorf("cannot tell what this system's ostree can do: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.TrimSpace(line) == "- composefs" {
			return nil
		}
	}
	return fault.New(fault.Refused, "cannot deploy the image: it boots only with composefs (composefs.enabled in its /usr/lib/ostree/prepare-root.conf), which this system's ostree does not have").
		WithHint("use an image whose prepare-root.conf has composefs.enabled=maybe, or pivot first to a release with a newer ostree")
}
