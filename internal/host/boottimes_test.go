package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"machine-pivot/pivot"
)

// TestStamps: the properties of systemd have the form in org.freedesktop.systemd1(5).
func TestStamps(t *testing.T) {
	for _, c := range []struct {
		name       string
		properties map[string]string
		want       pivot.Boot
	}{
		{"UEFI, started system", map[string]string{"FirmwareTimestampMonotonic": "@t 12500000", "LoaderTimestampMonotonic": "@t 2500000", "InitRDTimestampMonotonic": "@t 1200400", "UserspaceTimestampMonotonic": "@t 9000000"},
			pivot.Boot{Firmware: 10, Loader: 2.5, Initramfs: 1.2, System: 9}},
		{"BIOS, initramfs", map[string]string{"FirmwareTimestampMonotonic": "@t 0", "LoaderTimestampMonotonic": "@t 0", "InitRDTimestampMonotonic": "@t 1200000", "UserspaceTimestampMonotonic": "@t 1200000"},
			pivot.Boot{Initramfs: 1.2}},
		{"no initramfs", map[string]string{"InitRDTimestampMonotonic": "@t 0", "UserspaceTimestampMonotonic": "@t 3000000"}, pivot.Boot{System: 3}},
		{"nothing is told", nil, pivot.Boot{}},
	} {
		var got pivot.Boot
		addStamps(&got, func(name string) string { return c.properties[name] })
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestBootTimes: the kernel's start is known for the running machine only.
func TestBootTimes(t *testing.T) {
	boot := New("/").BootTimes(t.Context())
	if up := time.Since(boot.Kernel); boot.ID == "" || up <= 0 || up > 100*365*24*time.Hour {
		t.Errorf("the running boot is %+v, up for %s", boot, up)
	}
	root := t.TempDir()
	file := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("another\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if boot := New(root).BootTimes(t.Context()); boot != (pivot.Boot{}) {
		t.Errorf("another machine's boot is %+v", boot)
	}
}
