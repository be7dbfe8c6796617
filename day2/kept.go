package day2

import (
	"fmt"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// equalDefaults returns what the machine's MachineConfig asks for in /etc and the running image has by default. libostree
// takes it for unmodified, so whoever changes only the image has to ask for it too, or the next image's default replaces
// it. What has been changed locally is not among it: libostree carries that over.
func (r *Rebase) equalDefaults() (equal []hostfiles.File, err error) {
	from, data, err := readCurrent(r.Host.Root)
	if from == "" || from == machineconfig.DaemonPath { // the daemon writes what its MachineConfig asks for itself
		return nil, err
	}
	facts, err := r.Facts()
	if err != nil {
		return nil, err
	}
	current, err := parseCurrent(from, data, facts)
	if err != nil {
		r.Progress.Note(fmt.Sprintf("warning: what the machine's MachineConfig asks for is not looked at, and the new image may have something else by default: %v", err))
		return nil, nil
	}
	files, err := r.EntriesOf(current)
	if err != nil {
		return nil, err
	}
	had := pivot.Target{Entries: hostfiles.Entries(files), Units: current.Units}
	etc, err := r.Host.Etc(had)
	if err != nil {
		return nil, err
	}
	for _, e := range etc.Of(had) {
		have, there := etc.Entries[e.Path]
		shipped, ships := etc.Image[e.Path]
		if e.Removes() || projection.Outside(e.Path) || !there || !ships || have != shipped || len(etc.Changes([]hostfiles.Entry{e})) > 0 {
			continue
		}
		equal = append(equal, hostfiles.File{Entry: have, Content: pivot.ContentOf(files, e.Path)})
	}
	return equal, nil
}
