package osimage

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
)

// TestWriting: a failure of the disk is not taken for one of the network, although an errno
// implements net.Error.
func TestWriting(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fault.Kind
		hint string
	}{
		{unix.ENOSPC, fault.CannotWrite, "free space"},
		{&fs.PathError{Op: "open", Err: unix.EROFS}, fault.CannotWrite, "read-write"},
		{unix.EIO, fault.Internal, ""},
		{context.Canceled, fault.Unavailable, ""},
		{&ostree.CorruptError{}, fault.BadInput, "damaged"},
		{&ostree.CorruptError{Err: guard.TooMuch("too much")}, fault.BadInput, "build the image with less in it"},
		{&ostree.InvalidError{Err: guard.TooMuch("too much")}, fault.BadInput, "build the image with less in it"},
		{imagefault.Damaged("%w", &sepolicy.InvalidError{Err: guard.NewBudget(0, "patterns").Take(1)}), fault.BadInput, "build the image with less in it"},
		{fault.New(fault.Refused, "%w", unix.ENOSPC), fault.Refused, ""},
		{&ostree.LabelError{Label: "x", Cause: hostfiles.ErrUnknownLabel}, fault.Refused, "install_exec_t"},
	} {
		err := writing(fmt.Errorf("cannot write: %w", c.err))
		if fault.KindOf(err) != c.want || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%v: kind %d, want %d; hint %q, want %q", c.err, fault.KindOf(err), c.want, fault.HintOf(err), c.hint)
		}
	}
}
