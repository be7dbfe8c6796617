package hostimages

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/script"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"measure": script.Measure, "names": printPackages})
}

// printPackages is a program that prints the number of names in a repository.
func printPackages() {
	all, err := repositoryPackages(os.Args[1])
	fmt.Println(len(all), "names", err)
	if err != nil {
		os.Exit(fault.KindOf(err).ExitStatus())
	}
}

// TestLargePackageLists: lists that compress well take neither memory nor time.
func TestLargePackageLists(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of MiB")
	}
	const MiB = 1 << 20
	for name, c := range map[string]struct {
		parts []string // the second one repeats
		bytes int
		exit  int
		text  string
	}{
		"a name":              {[]string{"<metadata><package><name>", "x"}, 400 * MiB, 65, "a tag or a text has more than 1048576 bytes"},
		"an attribute":        {[]string{`<metadata a="`, "x"}, 400 * MiB, 65, "a tag or a text has more than 1048576 bytes"},
		"a comment":           {[]string{"<!--", "x"}, 400 * MiB, 65, "a tag or a text has more than 1048576 bytes"},
		"elements in another": {[]string{"", "<a>"}, 60 * MiB, 65, "elements in more than 16 others"},
		"elements":            {[]string{"<metadata>", "<a/>"}, 60 * MiB, 65, "more than 33554432 decompressed bytes"},
		"attributes":          {[]string{"<metadata", ` a=""`}, 60 * MiB, 65, "a tag or a text has more than 1048576 bytes"},
		"names":               {[]string{"<metadata>", "<package><name>x</name></package>"}, 60 * MiB, 65, "more than 65536 packages"},
		"names in a package":  {[]string{"<package>", "<name/>"}, 60 * MiB, 65, "more than 65536 packages"},
		"as in an OS":         {[]string{"<metadata>", "<package><name>x</name></package>"}, 100_000, 65, "EOF"}, // a list that is cut off
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			script.Bounded(t, c.exit, c.text, "names", repeated(t, c.parts[0], c.parts[1], c.bytes))
		})
	}
	t.Run("the_index", func(t *testing.T) {
		dir := repeated(t, "<metadata>", "", 0)
		index := "<repomd>" + strings.Repeat("<data/>", 200_000) + "</repomd>"
		if err := os.WriteFile(filepath.Join(dir, "repodata/repomd.xml"), []byte(index), 0o644); err != nil {
			t.Fatal(err)
		}
		script.Bounded(t, 65, "repomd.xml: it has more than 1048576 bytes", "names", dir)
	})
}

// repeated makes a repository with a list that begins with a text and then repeats another one.
func repeated(t *testing.T, begin, again string, bytes int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	const index = `<repomd><data type="primary"><location href="repodata/x.gz"/></data></repomd>`
	err := os.Mkdir(filepath.Join(dir, "repodata"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "repodata/repomd.xml"), []byte(index), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "repodata/x.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriterSize(z, 1<<20)
	_, err = io.WriteString(out, begin)
	for block := strings.Repeat(again, 1000); bytes > 0 && err == nil; bytes -= len(block) {
		_, err = io.WriteString(out, block)
	}
	if err := errors.Join(err, out.Flush(), z.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestUnpackRepositoryLimits: what layers unpack to is counted for all of them together, and not twice
// if a layer is read again.
func TestUnpackRepositoryLimits(t *testing.T) {
	u, err := unpackRepository(filepath.Join(t.TempDir(), "repository"), 2, 1000)
	if err != nil {
		t.Fatal(err)
	}
	write := func(p *repositoryPart, n int) error {
		t.Helper()
		f, err := p.CreateFile("a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, n))
		return errors.Join(err, f.Close())
	}
	for range 3 { // the layer is read again
		if err := write(u.part(0), 600); err != nil {
			t.Fatal(err)
		}
	}
	err = write(u.part(1), 600)
	if fault.KindOf(err) != fault.CannotWrite || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "more than 1000 bytes of unpacked packages") {
		t.Errorf("more than is free: %v", err)
	}
	part := u.part(1)
	for n := 0; err == nil || n == 0; n++ {
		if err = part.Remove(fmt.Sprint(n)); n > 1<<16 {
			t.Fatal("any number of files can be removed")
		}
	}
	if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "more than 65536 files") {
		t.Errorf("removals: %v", err)
	}
}
