// Package systemdunits holds the units that start pivot on a machine, and the
// drop-ins that make others wait for it: the files beside this one.
package systemdunits

import "embed"

// Program is the path of the program in the units.
const Program = "/usr/bin/pivot"

// Files are the units, and the drop-ins in a directory for each unit that they
// are of.
//
//go:embed *.service *.d/*.conf
var Files embed.FS
