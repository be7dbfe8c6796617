package firstboot

import (
	"context"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/identity"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/settings"
)

// How long a machine that has lost its name waits for it, and how often it looks.
const (
	nameTimeout = 5 * time.Minute
	nameEvery   = 2 * time.Second
)

// noteIdentity notes what others know the machine by, for the proof after the reboot: as the first attempt finds it, since a
// later one may run in the new system. In an initramfs there is nothing of that yet.
func (b *FirstBoot) noteIdentity() {
	if b.Where().Started() && b.Progress.Content.Identity == nil {
		b.Progress.Content.Identity = new(identity.Read(b.Host.Root))
	}
}

// compareIdentity says what others know the machine by and is not as it was before the reboot. Nothing of that makes the
// new system wrong: it is what was asked for. But a kubelet without the machine's name would join the cluster as another
// node, and so this waits for the name, which DHCP or a cloud's agent may bring late.
func (b *FirstBoot) compareIdentity(ctx context.Context, on settings.Identity) error {
	before := b.Progress.Content.Identity
	if before == nil {
		return nil
	}
	lost := func(context.Context) error {
		if now := identity.Read(b.Host.Root); before.LostName(now) {
			return fault.New(fault.Unavailable, "the host name is %q; before the reboot it was %q", now.Name, before.Name)
		}
		return nil
	}
	if on == settings.IdentityHold {
		policy := retry.Policy{First: nameEvery, Cap: nameEvery, Bound: nameTimeout, Now: b.Retry.Now, Sleep: b.Retry.Sleep}
		if err := policy.Do(ctx, b.Progress.Waiting, lost); ctx.Err() != nil {
			return err
		}
	}
	b.Progress.Content.Changes = before.Changes(identity.Read(b.Host.Root))
	for _, change := range b.Progress.Content.Changes {
		b.Progress.Note("warning: " + change)
	}
	b.Progress.Content.Identity = nil
	return nil
}
