package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"

	"machine-pivot/internal/ostree"
)

// oneShot is a boot loader's method to start an entry once and then its default again.
type oneShot struct {
	loader string
	set    func(ctx context.Context, entry ostree.BootEntry) error
	forget func(ctx context.Context) error // undoes set
}

// OneShot returns the name of the boot loader's method to start an entry once. The error says
// why there is none.
func (h *Host) OneShot() (loader string, err error) {
	o, err := h.loaderOnce()
	return o.loader, err
}

// BootOnce makes the boot loader start a deployment at the next boot only, and the default at
// the boot after that. The deployment's boot entry must have been read for this try.
func (h *Host) BootOnce(ctx context.Context, d ostree.Deployment) error {
	if err := h.CheckNothingStaged(); err != nil {
		return err
	}
	o, err := h.loaderOnce()
	if err == nil {
		err = o.set(ctx, d.Entry)
	}
	return err
}

// ForgetOnce undoes BootOnce.
func (h *Host) ForgetOnce(ctx context.Context) error {
	o, err := h.loaderOnce()
	if err == nil {
		err = o.forget(ctx)
	}
	return err
}

func (h *Host) loaderOnce() (oneShot, error) {
	if features, err := h.loaderFeatures(); err != nil {
		return oneShot{}, err
	} else if features&entryOneShot != 0 {
		return h.interfaceOnce(), nil
	}
	return h.grubOnce()
}

// interfaceOnce returns the method of the boot loader interface. In that interface, the ID of an
// entry does not have the counter of boots in the name of its file, NAME+LEFT[-DONE].conf
// (systemd.io/AUTOMATIC_BOOT_ASSESSMENT).
func (h *Host) interfaceOnce() oneShot {
	set := func(ctx context.Context, id string) error {
		_, err := h.Run(ctx, "bootctl", "set-oneshot", id)
		return err
	}
	return oneShot{
		loader: "a one-shot entry (LoaderEntryOneShot)",
		set: func(ctx context.Context, e ostree.BootEntry) error {
			return set(ctx, bootCounter.ReplaceAllString(e.File, ".conf"))
		},
		forget: func(ctx context.Context) error { return set(ctx, "") },
	}
}

var bootCounter = regexp.MustCompile(`\+[0-9]+(-[0-9]+)?\.conf$`)

// The boot loader interface (systemd.io/BOOT_LOADER_INTERFACE): a loader announces its features
// in an EFI variable, 64 bits little-endian after the variable's four bytes of attributes.
const (
	loaderFeaturesPath = efiPath + "/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	entryOneShot       = 1 << 3
)

func (h *Host) loaderFeatures() (byte, error) {
	text, err := os.ReadFile(h.Path(loaderFeaturesPath))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) < 5 {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot observe the host: %w", err)
	}
	return text[4], nil
}
