package kargs_test

import (
	"testing"

	"machine-pivot/kargs"
)

// TestApplyOfAnImage checks the rule for arguments that images bring. Requested arguments take
// precedence over them.
func TestApplyOfAnImage(t *testing.T) {
	for _, c := range []struct {
		name, booted   string
		before, now    string // arguments of the booted and of the new image
		new, del       string // requested
		final          string
		appended, gone string
	}{
		{name: "the booted image brings none", booted: "root=/dev/vda rw", now: "quiet console=ttyS0", final: "root=/dev/vda rw quiet console=ttyS0", appended: "quiet console=ttyS0"},
		{name: "the new image brings none", booted: "rw quiet x=1", before: "quiet", final: "rw x=1", gone: "quiet"},
		{name: "both bring the same", booted: "rw quiet", before: "quiet", now: "quiet", final: "rw quiet"},
		{name: "what both bring stays removed", booted: "rw", before: "quiet x=1", now: "x=1 quiet", final: "rw"},
		{name: "what both bring stays as it was changed", booted: "rw loglevel=7", before: "loglevel=3", now: "loglevel=3", final: "rw loglevel=7"},
		{name: "a value replaced", booted: "mitigations=auto rw", before: "mitigations=auto", now: "mitigations=off", final: "rw mitigations=off", appended: "mitigations=off", gone: "mitigations=auto"},
		{name: "there already", booted: "quiet rw", now: "quiet", final: "quiet rw"},
		{name: "there already in another spelling", booted: "log-buf-len=1M", now: "log_buf_len=1M", final: "log-buf-len=1M"},
		{name: "another spelling is no change of the image", booted: "rw log-buf-len=1M", before: "log-buf-len=1M", now: "log_buf_len=1M", final: "rw log-buf-len=1M"},
		{name: "gone before", booted: "rw", before: "quiet", final: "rw"},
		{name: "each instance goes", booted: "x=1 rw x=1", before: "x=1", final: "rw", gone: "x=1 x=1"},
		{name: "what the machine boots by stays", booted: "root=/dev/vda ostree=/x rw", before: "root=/dev/vda ostree=/x", final: "root=/dev/vda ostree=/x rw"},
		{name: "asked for comes last", booted: "rw", now: "loglevel=3", new: "loglevel=7", final: "rw loglevel=3 loglevel=7", appended: "loglevel=3 loglevel=7"},
		{name: "asked for and brought is once", booted: "rw", now: "nosmt quiet", new: "nosmt", final: "rw quiet nosmt", appended: "quiet nosmt"},
		{name: "asked for stays though its image is gone", booted: "rw nosmt", before: "nosmt", new: "nosmt", final: "rw nosmt"},
		{name: "deleted stays deleted", booted: "rw quiet", now: "quiet x=1", del: "quiet", final: "rw x=1", appended: "x=1", gone: "quiet"},
		{name: "deleted by key stays deleted", booted: "rw mitigations=auto", now: "mitigations=off", del: "mitigations", final: "rw", gone: "mitigations=auto"},
		{name: "another value than the deleted one comes", booted: "rw", now: "console=ttyS0 console=tty0", del: "console=tty0", final: "rw console=ttyS0", appended: "console=ttyS0"},
		{name: "deleted and dropped", booted: "rw quiet", before: "quiet", del: "quiet", final: "rw", gone: "quiet"},
		{name: "twice in the image", booted: "rw", now: "quiet quiet", final: "rw quiet", appended: "quiet"},
		{name: "huge pages of image and request", booted: "rw", now: "hugepagesz=1G hugepages=2", new: "hugepagesz=2M hugepages=6",
			final: "rw hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=6", appended: "hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=6"},
		{name: "init's arguments stay last", booted: "rw -- quiet", before: "quiet", now: "nosmt", final: "rw nosmt -- quiet", appended: "nosmt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := kargs.Change{
				New: kargs.Split(c.new), Delete: kargs.Split(c.del),
				Image: &kargs.ImageChange{Before: kargs.Split(c.before), Now: kargs.Split(c.now)},
			}
			r := apply(t, change, c.booted, c.final, c.appended, c.gone)
			// The same change is applied to verify the next boot, and must be a no-op there.
			if again, err := change.Apply(r.Final); err != nil || again.Changed {
				t.Errorf("a second run changes %q to %q (%v)", r.Final, again.Final, err)
			}
		})
	}
}
