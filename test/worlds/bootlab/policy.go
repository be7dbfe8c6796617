package bootlab

import "machine-pivot/test/worlds/oscontainer"

// policy returns a derived layer with B's own SELinux policy if B's commit does not have it: the
// changes that semodule makes in a container build. It comes last, so that the policy applies to
// files of the layers before it.
func (l *Lab) policy() ([]oscontainer.Option, error) {
	if l.Guest.Policies.Changed == "" {
		return nil, nil
	}
	entries, err := oscontainer.Difference(l.Guest.Policies.Base, l.Guest.Policies.Changed)
	return []oscontainer.Option{oscontainer.WithDerived(entries...)}, err
}

// layers returns the derived layers of a version of an image: those of changes and of policy.
func (l *Lab) layers(version int) ([]oscontainer.Option, error) {
	policy, err := l.policy()
	return append(changes(version), policy...), err
}
