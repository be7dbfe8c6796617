package vm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// Report is the report of the guest's boot-report unit on a boot.
type Report struct {
	Version      string // from os-release
	MarkerB      bool   // whether the file that only B has exists
	Kernel       string // the kernel release, as in uname -r
	Cmdline      string
	BootID       string
	Online       bool           // network-online.target was reached
	Files        []ReportedFile // CRI-O's drop-ins and kubelet's pinning file
	Labels       []Label        // of those files and their directories, and of NewTypePath; none without SELinux
	Relabel      []string       // what restorecon would change; none without SELinux
	Enforcing    bool           // SELinux is enforcing
	Encapsulated bool           // the encapsulated MachineConfig exists
	Closed       bool           // its .bak exists
	Unit         Unit           // pivot-firstboot.service
	Kubelet      Unit
	FailedUnits  string   // their names
	Deployments  int      // their number
	Deployed     []string // their names: COMMIT.N
	Status       Status   // zero if the guest has no pivot or it printed nothing
	Plot         []byte   // output of "pivot plot"; empty if there was nothing to draw
}

// ReportedFile is a file in the guest.
type ReportedFile struct {
	Path     string
	Mode     string // octal
	UID, GID int
	SHA256   string
	Content  []byte
}

// Label is a file's SELinux label and the label that the policy has for it.
type Label struct{ Path, Label, Policy string }

// Unit is the state of a systemd unit. The fields are named after systemd's properties.
type Unit struct {
	LoadState, ActiveState, SubState, Result, ConditionResult string

	ExecMainStatus int `json:",string"`
	NRestarts      int `json:",string"`

	// ActiveEnterTimestampMonotonic is in microseconds since the kernel started;
	// 0: never.
	ActiveEnterTimestampMonotonic int64 `json:",string"`
}

// Status is the output of "pivot status -o json".
type Status struct {
	Phase   string
	Attempt int
	Notes   []string
	Error   *struct{ Message, Hint string }
	Phases  []struct {
		Name    string
		Seconds float64
	}
}

const reportToken = "@@report "

// Report reads the guest's report.
func (b *BootResult) Report() (*Report, error) {
	for _, line := range b.Reported {
		if text, found := strings.CutPrefix(line, reportToken); found {
			r, err := parseReport(text)
			if err != nil {
				return nil, fmt.Errorf("cannot read the guest's report: %w: %s", err, text)
			}
			return r, nil
		}
	}
	return nil, fmt.Errorf("the guest gave no report; it %s", b.Exit)
}

func parseReport(text string) (*Report, error) {
	var r struct {
		Report
		Status []byte // JSON in base64; it shadows Report.Status
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(r.Status)) > 0 {
		if err := json.Unmarshal(r.Status, &r.Report.Status); err != nil {
			return nil, fmt.Errorf("pivot status: %w: %s", err, r.Status)
		}
	}
	return &r.Report, nil
}

// HasFile returns an error if the guest's file differs from f in content, mode or owner, or is
// missing.
func (r *Report) HasFile(f TreeFile) error {
	content, err := f.content()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	for _, have := range r.Files {
		switch {
		case have.Path != f.Path:
		case have.SHA256 != hex.EncodeToString(sum[:]):
			return fmt.Errorf("file %s holds %q in the guest, want %q", f.Path, have.Content, content)
		case have.Mode != fmt.Sprintf("%o", f.Mode) || have.UID != 0 || have.GID != 0:
			return fmt.Errorf("file %s has mode %s, owner %d:%d in the guest, want mode %o, 0:0", f.Path, have.Mode, have.UID, have.GID, f.Mode)
		default:
			return nil
		}
	}
	return fmt.Errorf("file %s is missing in the guest", f.Path)
}

// FilesIn counts the reported files in a directory.
func (r *Report) FilesIn(dir string) int {
	n := 0
	for _, f := range r.Files {
		if path.Dir(f.Path) == dir {
			n++
		}
	}
	return n
}
