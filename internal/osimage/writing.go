package osimage

import (
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// writing gives an error of the repository its fault.Kind. Errors that have a kind already,
// such as those of the image's source or content, are returned unchanged. What is beyond a limit, wherever
// that is counted, is too large, not damaged.
func writing(err error) error {
	if errors.Is(err, guard.ErrTooMuch) && !imagefault.IsFinal(err) {
		return imagefault.TooLarge("%w", err)
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*ostree.CorruptError](err); ok {
		return imagefault.Damaged("%w", err)
	}
	if _, ok := errors.AsType[*ostree.InvalidError](err); ok {
		return imagefault.Misbuilt("%w", err)
	}
	if label, ok := errors.AsType[*ostree.LabelError](err); ok {
		return imagefault.Final(fault.New(fault.Refused, "%w", label).WithHint(hostfiles.UnknownLabelHint))
	}
	if none, ok := errors.AsType[*ostree.NoVerityError](err); ok {
		return imagefault.Final(fault.New(fault.Refused, "%w", none).
			WithHint("enable it, for ext4 with tune2fs -O verity DEVICE, or make it optional: ostree config --repo=%s set ex-integrity.fsverity maybe", none.Path))
	}
	if full := imagefault.CannotWrite(err); full != nil {
		return full
	}
	return err
}
