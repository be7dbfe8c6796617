package machine

import "machine-pivot/pivot"

// closingPart is the name of the journal's part with a Closing.
const closingPart = "first-boot"

// Closing is how the first boot ended; later transactions keep it. It is needed because all deployments share /var, where
// the journal is, but not /etc: in an older deployment the first boot still looks unfinished.
type Closing struct {
	Deployment string `json:"deployment"` // in which it was proven: Deployment.ID
	Request    string `json:"request"`    // digest of the encapsulated MachineConfig: sha256:…
}

// ClosingIn returns how the first boot ended, by a journal; nil if it has not.
func ClosingIn(r pivot.JournalContent) (*Closing, error) {
	return pivot.PartOf[Closing](r, closingPart)
}

// KeepIn sets how the first boot ended in a journal.
func (c Closing) KeepIn(r *pivot.JournalContent) error {
	return r.SetPart(closingPart, c, pivot.Part{})
}

// DropClosing removes how the first boot ended from a journal, because it begins again.
func DropClosing(r *pivot.JournalContent) { r.DropPart(closingPart) }
