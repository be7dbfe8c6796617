package sepolicy_test

import (
	"encoding/binary"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/sepolicy"
	"machine-pivot/test/tools/need"
)

// compile compiles the contexts in a directory with the real sefcontext_compile.
func compile(t *testing.T, dir string, more ...string) {
	t.Helper()
	if _, err := exec.LookPath("sefcontext_compile"); err != nil {
		need.Lacking(t, "needs libselinux's sefcontext_compile: "+err.Error())
	}
	if out, err := exec.Command("sefcontext_compile", append(more, filepath.Join(dir, "file_contexts"))...).CombinedOutput(); err != nil {
		t.Fatalf("sefcontext_compile: %v\n%s", err, out)
	}
}

// TestCompiled: compiled contexts give the same labels as their text, whether they
// contain compiled regular expressions or not. If both exist, the compiled form is used.
func TestCompiled(t *testing.T) {
	contexts := madeContexts()
	for _, more := range [][]string{nil, {"-r"}} {
		text, compiled := t.TempDir(), t.TempDir()
		write(t, text, "file_contexts", contexts)
		write(t, compiled, "file_contexts", contexts)
		compile(t, compiled, more...)
		write(t, compiled, "file_contexts", "/.*  stale\n")
		want, got := contextsIn(t, text), contextsIn(t, compiled)
		for n, path := range pathsOf(contexts, 5000) {
			mode := []fs.FileMode{0, fs.ModeDir, fs.ModeSymlink}[n%3]
			a, _, err := want.Label(path, mode)
			b, _, berr := got.Label(path, mode)
			if err != nil || berr != nil || a != b {
				t.Fatalf("%q: %q, %v by the text, %q, %v compiled", path, a, err, b, berr)
			}
		}
	}
}

// tree returns compiled contexts of version 6, which older releases of libselinux do not
// write.
func tree() []byte {
	var b []byte
	u16 := func(n int) { b = binary.BigEndian.AppendUint16(b, uint16(n)) }
	u32 := func(n uint32) { b = binary.BigEndian.AppendUint32(b, n) }
	text := func(s string) { u16(len(s) + 1); b = append(append(b, s...), 0) }
	u32(0xf97cff8a)
	u32(6)
	for _, s := range []string{"10.42", "8-8-el"} {
		u32(uint32(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint64(b, 4)
	u32(3)
	for _, s := range []string{"first", "second", "<<none>>"} {
		u16(len(s))
		b = append(b, s...)
	}
	pattern := func(context, number uint32, pattern string, kind byte) {
		u32(context)
		u32(number)
		text(pattern)
		u16(1)
		b = append(b, kind)
		u32(3) // a serialized expression
		b = append(b, "abc"...)
	}
	text("") // the root
	u32(1)
	u32(2)
	text(`/exact\.x`)
	text("/exact.x")
	b = append(b, 7) // regular files
	u32(1)
	pattern(1, 1, "/.*", 0)
	u32(1)
	text("/usr")
	u32(0)
	u32(2)
	pattern(2, 3, "/usr/b.*", 1) // directories
	pattern(3, 2, "/usr/.*", 0)
	u32(0)
	return b
}

func TestCompiledTree(t *testing.T) {
	c, err := read(map[string]string{"file_contexts": "/.* stale\n", "file_contexts.bin": string(tree())})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path string
		mode fs.FileMode
		want string
	}{
		{"/exact.x", 0, "second"}, {"/exact.x", fs.ModeDir, "first"}, {"/usr/b", fs.ModeDir, "second"},
		{"/usr/b", 0, ""}, {"/x", fs.ModeSymlink, "first"},
	} {
		if got, _, err := c.Label(row.path, row.mode); err != nil || got != row.want {
			t.Errorf("%q (%s): %q, %v, want %q", row.path, row.mode, got, err, row.want)
		}
	}
}

// TestBadCompiled: truncated compiled contexts are an error. For a newer version the text is
// read instead, as in libselinux.
func TestBadCompiled(t *testing.T) {
	whole := tree()
	for n := range whole {
		if _, err := read(map[string]string{"file_contexts": "", "file_contexts.bin": string(whole[:n])}); err == nil {
			t.Fatalf("no error of the first %d bytes of %d", n, len(whole))
		}
	}
	newer := append([]byte{}, whole...)
	newer[7] = 99
	c, err := read(map[string]string{"file_contexts": "/.*  text\n", "file_contexts.bin": string(newer)})
	if err != nil {
		t.Fatal(err)
	}
	if label, _, err := c.Label("/x", 0); err != nil || label != "text" {
		t.Errorf("%q, %v", label, err)
	}
}

// FuzzCompiled: reading compiled contexts never panics.
func FuzzCompiled(f *testing.F) {
	f.Add(tree())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := sepolicy.Files(func(name string) ([]byte, error) {
			if strings.HasSuffix(name, ".bin") {
				return data, nil
			}
			return nil, os.ErrNotExist
		}).Contexts("any")
		if err == nil {
			_, _, _ = c.Label("/usr/bin/tool", 0)
		}
	})
}
