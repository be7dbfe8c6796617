package pinning

import (
	"fmt"
	"machine-pivot/internal/problem"
	"regexp"
)

// Drop-ins that other programs write.
const (
	// ClusterDropIn has an empty set. Clusters that partition all nodes ship it.
	ClusterDropIn = "01-workload-pinning-default.conf"
	// ProfileDropIn is the drop-in of a performance profile.
	ProfileDropIn = "99-workload-pinning.conf"
)

// dropInName matches file names, except those of editors' backups and temporary files.
var dropInName = regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]*$`)

// DropInNamed returns the path of a drop-in with a name other than the default. The note says
// which other drop-in would override this one, or be overridden by it; "" if there is none.
func DropInNamed(name string) (path, note string, err error) {
	path = DropInDir + "/" + name
	switch {
	case !dropInName.MatchString(name) || isLeftover(path) || len(name) > 100:
		return "", "", fmt.Errorf("cannot use %s as a name in %s", problem.Quoted(name), DropInDir)
	case name < ClusterDropIn:
		note = fmt.Sprintf("%s sorts before %s: a cluster that partitions all nodes has that file, with an empty set, and it replaces this one", name, ClusterDropIn)
	case name > ProfileDropIn:
		note = fmt.Sprintf("%s sorts after %s, which a performance profile writes: it replaces the profile's", name, ProfileDropIn)
	}
	return path, note, nil
}
