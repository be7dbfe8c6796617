// Package hostpivot runs pivot on the host of the node agent. The agent itself changes no machine: it
// starts pivot as a transient unit of the host's systemd, and reads the documents that pivot writes.
// So a run outlives the agent that has started it, and the next agent finds the run and its result.
package hostpivot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/pid1"
)

// Host is what the agent knows of its host.
type Host struct {
	Start   pid1.StartID // of the running system
	Version string       // of pivot on the host
	Status  Status
	Run     Run
	Watched *Watched // nil if the host is not watched, or nothing was found yet
}

// Status is what the agent reads of the document Status.
type Status struct {
	Phase         string        `json:"phase"`
	Step          string        `json:"step"`
	Percent       int           `json:"percent"`
	Booted        *Deployment   `json:"booted"`
	Pending       *Deployment   `json:"pending"` // of the next boot, if it is another one
	MachineConfig *NamedConfigs `json:"machineConfig"`
	Downloaded    *Downloaded   `json:"downloaded"`
	Phases        []struct {
		Bytes int64 `json:"bytes"`
	} `json:"phases"`
	Error *Failure `json:"error"`
}

// Deployment is a system on the host.
type Deployment struct {
	Commit string `json:"commit"`
	Image  Image  `json:"image"`
}

// NamedConfigs are the MachineConfigs that the host has and should have.
type NamedConfigs struct {
	Current    *Named `json:"current"`
	RecordedBy string `json:"recordedBy"` // who has recorded Current
	Desired    *Named `json:"desired"`
}

// Downloaded is what was pulled for a later run.
type Downloaded struct {
	MachineConfig string `json:"machineConfig"` // its digest
	At            string `json:"at"`            // when it was complete
}

// Image is an image as pivot's documents name it.
type Image struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest"`
}

// String returns the reference with the digest, if the reference has none.
func (i Image) String() string {
	if i.Digest == "" || strings.Contains(i.Reference, "@") {
		return i.Reference
	}
	return i.Reference + "@" + i.Digest
}

// Named is the name of a MachineConfig.
type Named struct {
	Name string `json:"name"`
}

// Current returns the name of the running system's MachineConfig; "" if it has none.
func (s Status) Current() string {
	if s.MachineConfig == nil || s.MachineConfig.Current == nil {
		return ""
	}
	return s.MachineConfig.Current.Name
}

// Adopted reports whether pivot has compared all of the running system with its MachineConfig. It has not if the record
// is the machine-config-daemon's or that of a first boot, or if there is none. There is nothing yet that Verify could
// compare all of the system with.
func (s Status) Adopted() bool {
	return s.Current() != "" && s.MachineConfig.RecordedBy == recordedByPivot
}

// OfDaemon reports whether the host is the machine-config-daemon's.
func (s Status) OfDaemon() bool {
	return s.Current() != "" && s.MachineConfig.RecordedBy == recordedByDaemon
}

// The values of NamedConfigs.RecordedBy that the agent distinguishes.
const (
	recordedByPivot  = "pivot"
	recordedByDaemon = "machine-config-daemon"
)

// Desired returns the name of the MachineConfig that pivot was asked for last; "" if there is none.
func (s Status) Desired() string {
	if s.MachineConfig == nil || s.MachineConfig.Desired == nil {
		return ""
	}
	return s.MachineConfig.Desired.Name
}

// HasDownloaded reports whether everything for the MachineConfig with a digest, sha256:…, is on the
// host.
func (s Status) HasDownloaded(digest string) bool {
	return s.Downloaded != nil && s.Downloaded.At != "" && s.Downloaded.MachineConfig == digest
}

// PulledBytes returns how much the current or the last transaction has transferred.
func (s Status) PulledBytes() (sum int64) {
	for _, phase := range s.Phases {
		sum += phase.Bytes
	}
	return sum
}

// Plan is what the agent reads of the document Plan.
type Plan struct {
	Changed bool   `json:"changed"`
	Reboots int    `json:"reboots"`
	Needs   []Need `json:"needs"`
	Drain   struct {
		Wanted  bool     `json:"wanted"`
		Because []string `json:"because"`
	} `json:"drain"`
}

// Need is what one change of a Plan needs.
type Need struct {
	Change  string `json:"change"`
	Because string `json:"because"`
	Actions []struct {
		Type string `json:"type"`
	} `json:"actions"`
}

// RebootReasons returns why a plan needs a reboot: each change with its reason.
func (p Plan) RebootReasons() (reasons []string) {
	for _, n := range p.Needs {
		if len(n.Actions) == 1 && n.Actions[0].Type == "Reboot" {
			reasons = append(reasons, n.Change+": "+n.Because)
		}
	}
	return reasons
}

// Result is what the agent reads of the document Result.
type Result struct {
	Outcome string   `json:"outcome"`
	LeftOut []string `json:"leftOut"`
	Error   *Failure `json:"error"`
}

// Verify is what the agent reads of the document Verify.
type Verify struct {
	OK          bool         `json:"ok"`
	Differences []Difference `json:"differences"`
}

// Difference is one difference between the running system and its MachineConfig.
type Difference struct {
	Class   string `json:"class"`
	Name    string `json:"name"`
	Wrong   string `json:"wrong"`
	Message string `json:"message"`
}

// Failure is why pivot failed. It is an error.
type Failure struct {
	Class     string `json:"class"` // the name of a fault.Kind; empty in a Status
	Message   string `json:"message"`
	Hint      string `json:"hint"`
	Permanent bool   `json:"permanent"`
	// Verdicts are the names of those that say that the host cannot start the image, if that is why.
	Verdicts []string `json:"verdicts"`
}

// Error implements error.
func (f *Failure) Error() string { return f.Message }

// WithHint returns the failure with what to do about it.
func (f *Failure) WithHint() string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + "; " + f.Hint
}

// decode decodes a document of a kind. Another version of the documents is refused, since the agent
// would misunderstand it.
func decode(data []byte, kind api.Kind, into any) error {
	var head struct {
		APIVersion string   `json:"apiVersion"`
		Kind       api.Kind `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("cannot read the document %s of pivot: %w", kind, err)
	}
	if head.APIVersion != api.APIVersion {
		return fault.New(fault.Refused, "cannot use pivot on the host: its documents have the version %s, and this agent reads %s", cmp.Or(head.APIVersion, "none"), api.APIVersion).
			WithHint("install the agent and pivot of one release")
	}
	if head.Kind != kind {
		return fmt.Errorf("cannot read the document %s of pivot: it is a %s", kind, head.Kind)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot read the document %s of pivot: %w", kind, err)
	}
	return nil
}

// maxDocument is the maximum size of a document of pivot in bytes. A status has every entry of a
// MachineConfig.
const maxDocument = 32 << 20

// readDocument reads a document of a bounded size.
func readDocument(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("it has more than %d bytes", maxDocument)
	}
	return data, err
}
