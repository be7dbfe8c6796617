package lab

import "machine-pivot/test/oscontainer"

// policy is one more derived layer, if B's own SELinux policy is not in its commit: what
// a container build changes in which semodule runs. It comes last, so that it has labels
// for files of the layers before it.
func (l *Lab) policy() ([]oscontainer.Option, error) {
	if l.Guest.Policies.Changed == "" {
		return nil, nil
	}
	entries, err := oscontainer.Difference(l.Guest.Policies.Base, l.Guest.Policies.Changed)
	return []oscontainer.Option{oscontainer.WithDerived(entries...)}, err
}

// layers are the derived layers of an image in a version: the changes and, if it has
// one, the policy.
func (l *Lab) layers(version int) ([]oscontainer.Option, error) {
	policy, err := l.policy()
	return append(changes(version), policy...), err
}
