package api

import (
	"fmt"
	"hash/fnv"
)

// maxNote is the maximum length of an event's text in bytes; the API server allows 1,024 characters.
const maxNote = 1000

// EventOf returns the action and the text of an event of a controller. Recorders join events with equal actions and reasons
// whatever their texts are, so the action depends on the text.
func EventOf(verb, text string) (action, note string) {
	text = Shortened(text, maxNote)
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text)) // it never fails
	return fmt.Sprintf("%s-%08x", verb, sum.Sum32()), text
}

// The reasons of the agent's events about a Node. Those in the first group are the machine-config operator's, with the
// same meaning. Those in the second are pivot's own, since the operator finds out on an empty node what they report.
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
	EventPodDeleted       = "PodDeletedAgainstBudget"
	EventDrainRehearsed   = "DrainRehearsed"
	EventDownloadFailed   = "DownloadFailed"
	EventFailed           = "UpdateFailed"
	EventCannotStart      = "CannotStart"
	EventNeedsReplacement = "NeedsReplacement"
	EventHandedBack       = "HandedBack"

	EventWorkloadsAdvertised = "WorkloadsAdvertised"
	EventWorkloadsUnknown    = "WorkloadsUnknown"
)
