package pinning

import (
	"fmt"
	"regexp"
)

// The drop-ins that others write.
const (
	// ClusterDropIn is what clusters that partition all nodes ship: an empty set.
	ClusterDropIn = "01-workload-pinning-default.conf"
	// ProfileDropIn is what a performance profile writes.
	ProfileDropIn = "99-workload-pinning.conf"
)

// dropInName is a file name that no editor's backup or temporary file has.
var dropInName = regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]*$`)

// DropInNamed is the path of a drop-in of another name than the usual one. The
// note says who else would win or lose by that name; "" if nobody does.
func DropInNamed(name string) (path, note string, err error) {
	path = DropInDir + "/" + name
	switch {
	case !dropInName.MatchString(name) || isLeftover(path) || len(name) > 100:
		return "", "", fmt.Errorf("cannot use %s as a name in %s", quoted(name), DropInDir)
	case name < ClusterDropIn:
		note = fmt.Sprintf("%s sorts before %s: a cluster that partitions all nodes has that file, with an empty set, and it replaces this one", name, ClusterDropIn)
	case name > ProfileDropIn:
		note = fmt.Sprintf("%s sorts after %s, which a performance profile writes: it replaces the profile's", name, ProfileDropIn)
	}
	return path, note, nil
}
