// Package view shows a fleet to the person who runs it: where each node is and why it waits (Status), effects of
// MachineConfigs beforehand (Plan), a report without secrets (Gather).
//
// It only reads. What the reader may not read, or the cluster does not have, is named as missing. The rest is shown: a
// fleet is looked at most when something is wrong with it. Each of the three has a pure part, which judges what was
// read; Client is the only part that talks to the API server.
package view
