package rpmostree

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// DatabasePath is the path of the package database of a system for the stand-in.
const DatabasePath = "/usr/share/rpm/standin.json"

// database lists the packages of a system.
type database []dbPackage

// dbPackage is a package in the database.
type dbPackage struct {
	Name  string   `json:"name"`
	NEVRA string   `json:"nevra"` // NAME-VERSION-RELEASE.ARCH
	Files []string `json:"files"` // files, and directories that are removed recursively
}

// Database returns a database of the packages in files, all of one version. The values of files
// are the packages' files.
func Database(version string, files map[string][]string) []byte {
	var db database
	for name, files := range files {
		db = append(db, dbPackage{name, fmt.Sprintf("%s-%s-1.x86_64", name, version), files})
	}
	return db.bytes()
}

func (d database) bytes() []byte {
	slices.SortFunc(d, func(a, b dbPackage) int { return strings.Compare(a.NEVRA, b.NEVRA) })
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings only
	}
	return data
}

func (d database) find(name string) (dbPackage, bool) {
	i := slices.IndexFunc(d, func(p dbPackage) bool { return p.Name == name })
	if i < 0 {
		return dbPackage{}, false
	}
	return d[i], true
}

// databases has the databases that were read, by commit. Their content never changes, and running ostree for each takes
// most of the time of a call.
var databases sync.Map

// database returns the database of a commit. It is empty if the commit has none.
func (c *call) database(commit string) (db database, err error) {
	if data, there := databases.Load(commit); there {
		return db, json.Unmarshal(data.([]byte), &db)
	}
	out, err := c.Ostree(c.ctx, "ostree", "cat", "--repo="+c.repo(), commit, DatabasePath)
	if err != nil {
		return nil, nil //nolint:nilerr // a tree without a database
	}
	databases.Store(commit, out)
	return db, json.Unmarshal(out, &db)
}

var dbOptions = map[string]option{"repo": {value: true}}

// db implements "db list COMMIT" (src/app/rpmostree-db-builtin-list.cxx), which does not use the
// daemon.
func (c *call) db() (int, error) {
	if len(c.options.operand) != 2 || c.options.operand[0] != "list" {
		return exitFailed, failf("the stand-in knows \"db list REV\" only")
	}
	commit := c.options.operand[1]
	db, err := c.database(commit)
	if err != nil {
		return exitFailed, err
	}
	// The client checks out the database to a directory in /tmp.
	dir, err := os.MkdirTemp(filepath.Join(c.Root, "tmp"), "rpmostree-dbquery-*")
	if err != nil {
		return exitFailed, failf("mkdirat: Read-only file system")
	}
	defer os.Remove(dir)
	fmt.Fprintf(c.stdout, "ostree commit: %s\n", commit)
	for _, p := range db {
		fmt.Fprintf(c.stdout, " %s\n", p.NEVRA)
	}
	return exitDone, nil
}
