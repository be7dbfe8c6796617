package host

import (
	"context"
	"os"
	"strings"
)

// FinalizeFailure returns the error that libostree left when it failed to finalize a deployment
// at shutdown. It is in a file on /boot, which ostree-boot-complete.service of the next boot
// moves to its own journal (ostree-sysroot-deploy.c, ot-admin-builtin-boot-complete.c).
func (h *Host) FinalizeFailure(ctx context.Context) string {
	if text, err := os.ReadFile(h.Path("/boot/ostree/finalize-failure.stamp")); err == nil {
		return strings.TrimSpace(string(text))
	}
	lines, err := h.Run(ctx, "journalctl", "--boot", "--unit=ostree-boot-complete.service", "--output=cat", "--no-pager", "--quiet")
	if err != nil {
		return "" // without a journal there is no text; the failure itself is known anyway
	}
	for line := range strings.Lines(string(lines)) {
		if _, failure, ok := strings.Cut(line, "failed on previous boot: "); ok {
			return strings.TrimSpace(failure)
		}
	}
	return ""
}
