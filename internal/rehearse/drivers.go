package rehearse

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/verdict"
)

const modprobe = "/usr/sbin/modprobe"

// judgeDrivers returns the devices for which the new kernel has no driver. The system does not start without one that /
// stands on: that refuses the image. The kernel is asked for the device first, and
// then for the modules that serve it today: the tables of drivers that are built in are not indexed before Linux 6.18,
// but their names are. Of a device that no module serves today nothing is known.
func (s Stage) judgeDrivers(ctx context.Context, next ostree.Checksum, devices []Device) (found []verdict.Finding, err error) {
	devices = slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return len(d.Modules) == 0 })
	release, err := s.kernel(next)
	if err != nil || release == "" || len(devices) == 0 {
		return nil, err
	}
	var asked [][]string
	for _, d := range devices {
		for _, name := range append([]string{d.Alias}, d.Modules...) {
			asked = append(asked, []string{modprobe, "-S", release, "-R", name})
		}
	}
	ended, err := s.run(ctx, next, asked...)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		answers := ended[:1+len(d.Modules)]
		ended = ended[len(answers):]
		if slices.ContainsFunc(answers, func(e ending) bool { return !e.noModule() }) {
			continue
		}
		lost := verdict.Finding{Name: verdict.Drivers, Weight: verdict.Warned, Text: fmt.Sprintf("%s stands on a device for which the new kernel, %s, has no driver (%s, today of %s)",
			d.Below, release, printable.Line(d.Alias), strings.Join(d.Modules, ", "))}
		if d.Below == "/" {
			lost.Weight, lost.Remedy = verdict.Refused, "use an image whose kernel has this driver, or connect the disk in another way"
		}
		found = append(found, lost)
	}
	return found, nil
}

// noModule reports whether modprobe says that there is none of the name. Another failure says nothing.
func (e ending) noModule() bool {
	return e.Status == 1 && strings.Contains(e.Said, " not found in directory ")
}

// kernel returns the release of a commit's kernel; "" if its modules are not where they are looked for.
func (s Stage) kernel(commit ostree.Checksum) (release string, err error) {
	repo, err := ostree.OpenRepo(s.Repo)
	if err != nil {
		return "", err
	}
	files, err := repo.BootFiles(commit)
	if i := slices.IndexFunc(files, ostree.BootFile.IsKernel); err == nil && i >= 0 && path.Dir(files[i].Dir) == modules {
		release = path.Base(files[i].Dir)
	}
	return release, err
}
