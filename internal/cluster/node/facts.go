package node

// Facts are the facts about a node and its host that Decide needs. They concern the desired
// MachineConfig: another one makes new facts.
type Facts struct {
	Managed   bool    // the node has a desired MachineConfig, and its host is an ostree host
	Run       Run     // of pivot, that an agent has started
	System    System  // how far the host is
	Failed    bool    // the change, or its proof, has failed, and is not to be tried now
	Reported  bool    // the node's annotations say what is the case: begun, failed or done
	Change    Change  // what the change needs
	Drain     Drained // how far the node's drain is
	Ours      bool    // the node is cordoned because of the agent
	Rehearsed bool    // the drain was rehearsed, and nothing stands in its way
	Prefetch  bool    // another MachineConfig is to be downloaded before its turn, and is not on the host
	Proven    bool    // the running system was compared with its MachineConfig, and does not differ
}

// Run is the state of the last run of pivot.
type Run string

// The states of a run.
const (
	RunIdle     Run = "idle"     // none, or it has ended
	RunRunning  Run = "running"  //
	RunOutdated Run = "outdated" // a download of a MachineConfig that nobody asks for any more is running
)

// System is how far the host is on the way to the desired MachineConfig.
type System string

// The states of a host.
const (
	SystemOther      System = "other"      // none of those below
	SystemDownloaded System = "downloaded" // everything for the change is on the host, and checked
	SystemCommitted  System = "committed"  // the next boot is what is desired
	SystemTrial      System = "trial"      // the running system is what is desired, and has to prove itself
	SystemReverting  System = "superseded" // the running system is what is desired, but the next boot is not
	SystemTarget     System = "target"     // the running system is what is desired, and so is the next boot
)

// Change is what a change needs.
type Change string

// The needs of a change.
const (
	ChangeUnknown Change = "unknown" // there is no plan yet
	ChangeLive    Change = "live"    // neither a drain nor a reboot
	ChangeDrain   Change = "drain"   // a drain, and no reboot
	ChangeReboot  Change = "reboot"  // both
	ChangeSingle  Change = "single"  // a reboot of the only node of its cluster, which is not drained
)

// Drained is how far the drain for the desired MachineConfig is.
type Drained string

// The states of a drain.
const (
	DrainNone      Drained = "none"      // not asked for, or somebody has ended it
	DrainRequested Drained = "requested" // asked for
	DrainComplete  Drained = "complete"  // the node is cordoned and empty
	DrainAnnounced Drained = "announced" // the same, and it is announced that the node will reboot
)
