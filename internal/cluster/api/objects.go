package api

import "time"

// The resources that the agent reads and writes.
const (
	OperatorGroup      = "machineconfiguration.openshift.io"
	OperatorVersion    = "v1"
	MachineConfigs     = "machineconfigs"
	MachineConfigNodes = "machineconfignodes"

	Group       = Prefix
	Version     = "v1alpha1"
	NodeSystems = "nodesystems"
)

// NodeSystemStatus is the status of a NodeSystem: the state of a node's operating system, which no other
// object shows, such as each kernel argument that is missing or in excess. The object has the name of its
// node, and only the agent writes it.
type NodeSystemStatus struct {
	Config   ConfigNames `json:"config"`
	Step     string      `json:"step"`               // the agent's action, as in docs/dev/agent.md
	Progress *Progress   `json:"progress,omitempty"` // of a run of pivot
	// Booted and Pending are the running system and, if it is another, that of the next boot.
	Booted  *System `json:"booted,omitempty"`
	Pending *System `json:"pending,omitempty"`
	// KernelArguments are the first of those of the running kernel that differ from what is desired.
	KernelArguments KernelArguments `json:"kernelArguments"`
	Proof           *Proof          `json:"proof,omitempty"` // of the running system
	Failure         string          `json:"failure,omitempty"`
	Download        *EarlyDownload  `json:"download,omitempty"` // the last one that was asked for and has ended
	LeftOut         []string        `json:"leftOut,omitempty"`  // parts of the MachineConfig that only an installation can apply; the last entry says how many more there are
	BootID          string          `json:"bootID,omitempty"`
	AgentVersion    string          `json:"agentVersion"`
	PivotVersion    string          `json:"pivotVersion,omitempty"`
}

// ConfigNames are names of MachineConfigs.
type ConfigNames struct {
	Current string `json:"current"` // of the running system, as the host says it
	Desired string `json:"desired"`
}

// Progress is how far a run of pivot is.
type Progress struct {
	Step        string `json:"step"`    // of pivot
	Percent     int    `json:"percent"` // of the step; 0 if it is not known
	BytesPulled int64  `json:"bytesPulled"`
}

// System is a deployment.
type System struct {
	Image  string `json:"image,omitempty"` // reference and digest
	Commit string `json:"commit"`          // of ostree
}

// KernelArguments are differences of the kernel's command line.
type KernelArguments struct {
	Missing []string `json:"missing"`
	Excess  []string `json:"excess"`
}

// EarlyDownload is the result of a download that the annotation Download has asked for.
type EarlyDownload struct {
	Config string `json:"config"`
	// Failure is why it has failed, and FailedAt when; "": everything for it is on the host, and checked. What has
	// failed is not tried again until somebody asks again.
	Failure  string    `json:"failure,omitempty"`
	FailedAt time.Time `json:"failedAt,omitzero"`
}

// Proof is the result of comparing the running system with its MachineConfig.
type Proof struct {
	OK          bool     `json:"ok"`
	Differences []string `json:"differences,omitempty"` // the first ones, for people
	Number      int      `json:"number"`                // of all differences
}
