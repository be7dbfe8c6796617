package rpmostree

import "context"

// DaemonUpdate is for TestAtOnceKilled, which kills the client of the daemon.
type DaemonUpdate = daemonUpdate

// Do makes the update.
func (u daemonUpdate) Do(ctx context.Context, root string, show func(line string)) error {
	return u.do(ctx, root, show)
}
