package docs_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stage is the environment for the commands of one document.
type stage struct {
	t     *testing.T
	dir   string                                                      // directory of files with relative names
	sh    func(command string) (output string, status int, err error) // runs a command there
	names map[string]string                                           // maps names and digests in the document to the actual ones
	notes map[string]func()                                           // the actions for the document's notes

	// absolute writes a file by its absolute path without the leading /; nil without a machine.
	absolute func(path, text string)
}

// newStage returns the stage of a document: a machine if it is in onMachines, a cluster if it is in onClusters, else an
// empty directory.
func newStage(t *testing.T, path, bin string) *stage {
	t.Helper()
	s := &stage{t: t, names: map[string]string{}, notes: map[string]func(){}}
	if set, ok := onMachines[path]; ok {
		set(newMachine(s, bin))
	} else if set, ok := onClusters[path]; ok {
		set(newCluster(s, bin))
	} else {
		s.plain(bin)
	}
	s.notes["MachineConfigs"] = s.machineConfigs
	return s
}

// plain sets the stage up in a directory.
func (s *stage) plain(bin string) {
	s.t.Helper()
	s.dir = s.t.TempDir()
	s.notes["a web server"] = s.webServer
	s.sh = func(command string) (string, int, error) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = s.dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode(), nil
		}
		return string(out), 0, err
	}
}

// webServer serves the directory web, as the document's own server would, at another port.
func (s *stage) webServer() {
	s.t.Helper()
	web := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(s.dir, "web"))))
	s.t.Cleanup(web.Close)
	s.names["127.0.0.1:8000"] = strings.TrimPrefix(web.URL, "http://")
}

// machineConfigs creates a directory with a MachineConfig, and bin/pivot beside it.
func (s *stage) machineConfigs() {
	s.t.Helper()
	s.put("conf/50-worker.yaml", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-worker\n"+
		"  labels: {machineconfiguration.openshift.io/role: worker}\nspec:\n  osImageURL: quay.io/os/os@sha256:"+strings.Repeat("0", 64)+"\n")
	if out, status := s.run("mkdir -p bin && cp $(command -v pivot) bin/"); status != 0 {
		s.t.Fatalf("exit status %d\n%s", status, out)
	}
}

// run runs a command of the document. In the output, actual names are replaced by those of the
// document.
func (s *stage) run(command string) (output string, status int) {
	s.t.Helper()
	command = s.actual(command)
	if strings.Contains(command, "config serve") {
		command = untilItServes(command)
	}
	output, status, err := s.sh("exec 2>&1\n" + command)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return s.asShown(output), status
}

// untilItServes stops a server as soon as it reports that it serves. It uses another port, because
// the document's port may be in use.
func untilItServes(command string) string {
	command = regexp.MustCompile(`:\d+ `).ReplaceAllString(command, ":0 ")
	return ": >.served; " + command + ` >.served 2>&1 & server=$!
while kill -0 $server 2>/dev/null && ! grep -q '^serving on ' .served; do sleep 0.05; done
kill $server 2>/dev/null; wait $server; sed 's/^serving on 127\.0\.0\.1:[0-9]*/serving on 127.0.0.1:22624/' .served`
}

// actual replaces the names of the document by the actual ones.
func (s *stage) actual(text string) string {
	for shown, is := range s.names {
		text = strings.ReplaceAll(text, shown, is)
	}
	return text
}

// asShown is the inverse of actual.
func (s *stage) asShown(text string) string {
	for shown, is := range s.names {
		text = strings.ReplaceAll(text, is, shown)
	}
	return text
}

// put writes a file of the document.
func (s *stage) put(name, text string) {
	s.t.Helper()
	if within, ok := strings.CutPrefix(name, "/"); ok && s.absolute != nil {
		s.absolute(within, text)
		return
	}
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(s.actual(text)), mode(text)); err != nil {
		s.t.Fatal(err)
	}
}

// mode returns the mode for a file with this text: scripts are executable.
func mode(text string) os.FileMode {
	if strings.HasPrefix(text, "#!") {
		return 0o755
	}
	return 0o644
}
