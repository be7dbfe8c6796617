// Package systemdunits embeds the files in this directory: the units that start pivot
// on a machine, and the drop-ins that make other units wait for it.
package systemdunits

import "embed"

// Program is the path of the program in the units.
const Program = "/usr/bin/pivot"

// Files holds the units, and the drop-ins in a directory for each unit that they
// extend.
//
//go:embed *.service *.path *.d/*.conf
var Files embed.FS
