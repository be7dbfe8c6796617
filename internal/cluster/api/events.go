package api

// The reasons of the agent's events about a Node. Those in the first group are the machine-config
// operator's, with the same meaning; those in the second are pivot's own, since the operator finds out
// on an empty node what they report.
const (
	EventUpdateStarted     = "OSUpdateStarted"
	EventCordon            = "Cordon"
	EventDrain             = "Drain"
	EventUncordon          = "Uncordon"
	EventReboot            = "Reboot"
	EventSkipReboot        = "SkipReboot"
	EventDone              = "NodeDone"
	EventFailedToReconcile = "FailedToReconcile"
	EventFailedToDrain     = "FailedToDrain"
	EventNotProven         = "OnDiskStateValidationFailed"
	EventDrift             = "ConfigDriftDetected"

	EventDownloaded       = "UpdateDownloaded"
	EventDrainRehearsed   = "DrainRehearsed"
	EventDownloadFailed   = "DownloadFailed"
	EventFailed           = "UpdateFailed"
	EventNeedsReplacement = "NeedsReplacement"
	EventHandedBack       = "HandedBack"

	EventWorkloadsAdvertised = "WorkloadsAdvertised"
	EventWorkloadsUnknown    = "WorkloadsUnknown"
)
