package docs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"machine-pivot/test/booted"
)

// lockServer is a FleetLock server with one group of one slot.
type lockServer struct {
	mu      sync.Mutex
	holder  string // "": nobody
	refused int    // requests since the slot changed hands
	asked   []string
}

// ServeHTTP implements http.Handler: version 1 of the protocol. The slot of "another"
// becomes free when somebody has asked for it twice.
func (l *lockServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var body struct {
		ClientParams struct{ ID, Group string } `json:"client_params"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	id, group := body.ClientParams.ID, body.ClientParams.Group
	known := regexp.MustCompile(`^[a-zA-Z0-9.-]+$`)
	if r.Method != http.MethodPost || r.Header.Get("fleet-lock-protocol") != "true" || err != nil || id == "" || !known.MatchString(group) {
		refuse(w, http.StatusBadRequest, "invalid_client_identity")
		return
	}
	l.asked = append(l.asked, r.URL.Path)
	switch {
	case r.URL.Path == "/v1/steady-state":
		if l.holder == id {
			l.holder = ""
		}
	case r.URL.Path != "/v1/pre-reboot":
		refuse(w, http.StatusNotFound, "not_found")
	case l.holder != "" && l.holder != id:
		if l.refused++; l.refused == 2 {
			l.holder = ""
		}
		refuse(w, http.StatusInternalServerError, "failed_lock")
	default:
		l.holder = id
	}
}

func refuse(w http.ResponseWriter, status int, kind string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"kind": kind, "value": kind}) // the client sees the status
}

// take gives the slot to another machine, or to nobody, and forgets what was asked.
func (l *lockServer) take(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.refused, l.asked = holder, 0, nil
}

func (l *lockServer) state() (holder, asked string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder, strings.Join(l.asked, " ")
}

// fleetLock is a machine whose fleet has one slot, which is another machine's at first.
func fleetLock(m *machine) {
	server := &lockServer{}
	web := httptest.NewServer(server)
	m.t.Cleanup(web.Close)
	m.names["http://fleetlock.example"], m.names["sleep 60"] = web.URL, "sleep 0.1"
	m.names["/usr/bin/pivot"] = booted.ProgramsDir + "/pivot"
	wants := func(when, holder, asked string) {
		m.t.Helper()
		gotHolder, gotAsked := server.state()
		if (gotHolder != "") != (holder != "") || gotAsked != asked {
			m.t.Errorf("%s: the slot is %q's, asked was %q, want %q and %q", when, gotHolder, gotAsked, holder, asked)
		}
	}
	m.notes["the slot is another machine's"] = func() {
		for _, unit := range []string{"os-update", "fleet-lock-release"} {
			verifyUnit(m.t, filepath.Join(m.Root, "etc/systemd/system", unit+".service"))
		}
		server.take("another")
	}
	m.notes["this machine has the slot and runs the new system"] = func() {
		const taken = "/v1/pre-reboot /v1/pre-reboot /v1/pre-reboot"
		wants("after the reboot", "this machine", taken)
		m.expects("systemctl start fleet-lock-release.service")
		wants("when the new system is proven", "", taken+" /v1/steady-state")
		server.take("")
		m.expects("systemctl start os-update.service")
		wants("with nothing to change", "", "")

		works := m.failingOstree()
		m.expects(`sed -i "s|os:stable|os:4.14|" /etc/systemd/system/os-update.service`)
		if out, status := m.run("systemctl start os-update.service"); status == 0 {
			m.t.Errorf("a commit that fails: exit status 0\n%s", out)
		}
		wants("after a commit that failed", "", "/v1/pre-reboot /v1/steady-state")

		works()
		m.expects("pivot rebase --append-karg quiet")
		server.take("")
		m.expects("systemctl stop os-update.service")
		wants("when the unit is stopped for the reboot", "", "")
	}
}

// failingOstree lets no deployment be made until works is called.
func (m *machine) failingOstree() (works func()) {
	m.t.Helper()
	const script = "#!/bin/sh\n[ \"$1 $2\" != \"admin deploy\" ] || { echo no >&2; exit 1; }\nexec /usr/bin/ostree \"$@\"\n"
	path := filepath.Join(m.Programs, "ostree")
	m.must(os.WriteFile(path, []byte(script), 0o755))
	return func() { m.must(os.Remove(path)) }
}

// verifyUnit asks systemd about a unit. The programs that it names are the machine's.
func verifyUnit(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^(Exec\w+)=(`+booted.ProgramsDir+`/pivot|/etc/fleet-lock/slot) `).ReplaceAllString(string(data), "$1=/bin/true ")
	copied := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", copied).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", path, err, out)
	}
}
