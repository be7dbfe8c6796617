// Package dracut embeds the dracut module with which pivot completes the first boot before the system starts.
package dracut

import "embed"

// Files holds the module's directory.
//
//go:embed 90pivot
var Files embed.FS
