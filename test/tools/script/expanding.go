package script

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Expanding writes a MachineConfig with n files of size bytes each, all compressed, and returns its
// path.
func Expanding(t *testing.T, name string, n, size int) (path string) {
	t.Helper()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(make([]byte, size))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	source := "data:;base64," + base64.StdEncoding.EncodeToString(packed.Bytes())
	var files []string
	for i := range n {
		files = append(files, fmt.Sprintf(`{"path":"/etc/%s/%d","mode":420,"contents":{"compression":"gzip","source":%q}}`, name, i, source))
	}
	path = filepath.Join(t.TempDir(), name+".json")
	text := fmt.Sprintf(`{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1",
"metadata":{"name":%q,"labels":{"machineconfiguration.openshift.io/role":"worker"}},
"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[%s]}}}}`, name, strings.Join(files, ","))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
