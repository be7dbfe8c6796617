package host

import "context"

// reboot asks systemd for an orderly reboot and returns when the request is accepted. It fails
// while an inhibitor lock blocks shutdown.
func reboot(ctx context.Context) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	return startTarget(ctx, "reboot.target")
}
