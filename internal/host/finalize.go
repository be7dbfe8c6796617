package host

import (
	"context"
	"os"
	"strings"
)

// FinalizeFailure is what libostree left when it could not finalize a deployment
// at shutdown: in a file on /boot, which ostree-boot-complete.service of the next
// boot moves to its own journal (ostree-sysroot-deploy.c, ot-admin-builtin-boot-complete.c).
func (h *Host) FinalizeFailure(ctx context.Context) string {
	if text, err := os.ReadFile(h.Path("/boot/ostree/finalize-failure.stamp")); err == nil {
		return strings.TrimSpace(string(text))
	}
	lines, err := h.Run(ctx, "journalctl", "--boot", "--unit=ostree-boot-complete.service", "--output=cat", "--no-pager", "--quiet")
	if err != nil {
		return "" // no journal, then no text: what is missing is known all the same
	}
	for line := range strings.Lines(string(lines)) {
		if _, failure, ok := strings.Cut(line, "failed on previous boot: "); ok {
			return strings.TrimSpace(failure)
		}
	}
	return ""
}
