package script

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// RefusesFiles runs a program with a file in place of each argument PIPE that it must not read. A device without an
// end, a directory, and a file that is larger than any that it reads. It requires the exit status 65, and that the
// program says why.
func RefusesFiles(t *testing.T, argv ...string) {
	t.Helper()
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	err := os.WriteFile(large, nil, 0o600)
	if err == nil {
		err = os.Truncate(large, 1<<40)
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{"/dev/zero": "it is a device", dir: "directory", large: "it has more than "} {
		var args []string
		for _, arg := range argv[1:] {
			args = append(args, strings.ReplaceAll(arg, "PIPE", path))
		}
		out, err := exec.Command(argv[0], args...).CombinedOutput()
		if err == nil || statusOf(err) != "65" || !strings.Contains(string(out), why) {
			t.Errorf("%q: %v, want exit status 65 and %q: %s", args, err, why, out)
		}
	}
}
