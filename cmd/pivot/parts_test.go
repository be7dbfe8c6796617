package main

import (
	"bytes"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/dracut"
	systemdunits "machine-pivot/systemd-units"
)

// TestProgramHasItsParts: the program has the text of each unit and of each file of the dracut module that is installed with
// it. "pivot image check" finds by that whether the parts of pivot in an image are of one version.
func TestProgramHasItsParts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for source, files := range map[string]embed.FS{"../../systemd-units": systemdunits.Files, "../../dracut": dracut.Files} {
		err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			part, err := os.ReadFile(filepath.Join(source, name))
			if !bytes.Contains(program, part) {
				t.Errorf("the program lacks the text of %s", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
