package rehearsal

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/rehearse"
	"machine-pivot/pivot"
)

const unitsDir = "/etc/systemd/system"

// maxUnits limits the files of services that a rehearsal gets, in bytes.
const maxUnits = 4 << 20

// ownUnits returns the services that a plan's new system has besides its image's: those of the running /etc which the
// running image does not have, and those of the plan. What cannot be read is left out: a rehearsal only warns about it.
func (f feature) ownUnits(plan pivot.Plan) rehearse.Units {
	u := rehearse.Units{Files: map[string][]byte{}}
	size := 0
	add := func(name string, content []byte) {
		if size += len(content); isService(name) && size <= maxUnits {
			u.Files[name] = content
		}
	}
	for _, pattern := range []string{"*.service", "*.service.d/*.conf"} {
		files, _ := filepath.Glob(f.m.Host.Path(path.Join(unitsDir, pattern)))
		for _, file := range files {
			name, _ := filepath.Rel(f.m.Host.Path(unitsDir), file)
			content, err := hostfiles.ReadDropIn(f.m.Host.Root, path.Join(unitsDir, name))
			shipped, _ := os.ReadFile(f.m.Host.Path(path.Join("/usr", unitsDir, name)))
			if err == nil && len(content) > 0 && !bytes.Equal(content, shipped) {
				add(name, content)
			}
		}
	}
	links, _ := filepath.Glob(f.m.Host.Path(unitsDir + "/*.*/*.service"))
	for _, link := range links {
		u.Enabled = append(u.Enabled, filepath.Base(link))
	}
	files, err := plan.Contents(unitsDir + "/")
	if err != nil {
		return u
	}
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, unitsDir+"/")
		delete(u.Files, name)
		switch f.Kind {
		case hostfiles.KindFile:
			add(name, f.Content)
		case hostfiles.KindLink:
			u.Enabled = append(u.Enabled, path.Base(name))
		}
	}
	for _, wish := range plan.To().Units.Wishes {
		if wish.State == enable.Enabled {
			u.Enabled = append(u.Enabled, wish.Name)
		}
	}
	return u
}

// isService reports whether a path in /etc/systemd/system is that of a service, or of a drop-in of one.
func isService(name string) bool {
	dir, _ := path.Split(name)
	return dir == "" && strings.HasSuffix(name, ".service") || strings.HasSuffix(dir, ".service.d/") && strings.HasSuffix(name, ".conf")
}
