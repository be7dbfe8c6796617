package machinefiles_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/machinefiles"
)

func TestPick(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "sub/c"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(name, 10)), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	// No file may have more than a hundredth of all bytes. Three files are too few, so each is picked several times.
	files := machinefiles.Pick([]string{dir}, 9, 9000, 1)
	if len(files) < 9 || machinefiles.Bytes(files) < int64(9*10) {
		t.Fatalf("picked %+v", files)
	}
	contents := map[string]bool{}
	for _, f := range files {
		path := filepath.Join(t.TempDir(), f.Path)
		if err := f.CopyTo(path, byte(f.Again)); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil || int64(len(content)) != f.Size {
			t.Errorf("%+v: content %q, %v", f, content, err)
		}
		contents[string(content)] = true
	}
	if len(contents) != len(files) {
		t.Errorf("%d contents of %d files", len(contents), len(files))
	}
	copied := filepath.Join(t.TempDir(), "below/copy")
	if err := machinefiles.Copy(filepath.Join(dir, "a"), copied); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode() != 0o750 || info.Size() != 10 {
		t.Errorf("copied %v, %v", info, err)
	}
}

// TestGenerate checks that a seed stands for the same bytes on each machine. They are like a host's: about as large as
// asked for, and compressible to about a half.
func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	if err := machinefiles.Generate(dir, 600, 6e6, 1); err != nil {
		t.Fatal(err)
	}
	files := machinefiles.Pick([]string{dir}, 300, 3e6, 1)
	if size := machinefiles.Bytes(files); size < 2.5e6 || size > 3.5e6 {
		t.Errorf("%d files with %d bytes", len(files), size)
	}
	sum := sha256.New()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, f := range files {
		fmt.Fprintln(sum, strings.TrimPrefix(f.Name, filepath.Base(dir)))
		data, err := os.ReadFile(f.Path)
		if err == nil {
			_, err = io.MultiWriter(sum, z).Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if share := float64(packed.Len()) / float64(machinefiles.Bytes(files)); share < 0.4 || share > 0.6 {
		t.Errorf("compressed to %.2f", share)
	}
	if got, want := hex.EncodeToString(sum.Sum(nil)), "d30a9a670f5bf96b2728281fbcfa593e90a8c2848f7366ed35d93df8c5e76bdd"; got != want {
		t.Errorf("the files are %s, want %s", got, want)
	}
}
