package e2e_test

import (
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// How many bytes pivot's dracut module may add to an initramfs: slightly more than the bound for
// the program itself. The compressed size matters too, because the boot loader usually reads a
// compressed initramfs.
const (
	maxAdded           = 22 << 20
	maxAddedCompressed = 8 << 20
)

// TestInitramfsSize makes a guest's initramfs with and without pivot's dracut module, with the
// guest's own dracut, and compares the sizes.
func TestInitramfsSize(t *testing.T) {
	t.Parallel()
	needMachines(t)
	installed, err := bootlab.Install(t.Context(), "../../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	builder := vm.Builder{Log: os.Stderr}
	size := func(overlay []vm.TreeFile) (plain, compressed int) {
		t.Helper()
		image, err := builder.Initramfs(t.Context(), vm.GuestSpec{Suite: vm.Trixie, Overlay: overlay})
		if err != nil {
			t.Fatal(err)
		}
		return len(image), len(compress(t, image))
	}
	plain, compressed := size(nil)
	with, withCompressed := size(installed)
	added, addedCompressed := with-plain, withCompressed-compressed
	t.Logf("initramfs without pivot: %5.1f MiB, %5.1f MiB by zstd", mib(plain), mib(compressed))
	t.Logf("initramfs with pivot:    %5.1f MiB, %5.1f MiB by zstd", mib(with), mib(withCompressed))
	t.Logf("added:                   %5.1f MiB, %5.1f MiB by zstd", mib(added), mib(addedCompressed))
	if added > maxAdded || addedCompressed > maxAddedCompressed {
		t.Errorf("pivot adds %d bytes, %d compressed; the bounds are %d and %d", added, addedCompressed, maxAdded, maxAddedCompressed)
	}
	if added < 1<<20 {
		t.Errorf("pivot adds %d bytes only: it is not in the initramfs", added)
	}
}

// compress compresses data with zstd, not at its highest level, which is slow.
func compress(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }
