package firstboot

import (
	"os"
	"slices"

	"machine-pivot/hostfiles"
	"machine-pivot/pinning"
	"machine-pivot/pivot"
)

// adopt makes the CPU partitioning that Ignition wrote before a first boot, or that
// is there when somebody pivots by hand, part of the target. libostree carries those
// files over by itself; as part of the target they are also read back in the new
// deployment, proven on the next boot, and verified from then on. What was there at
// the first commit is what must arrive: a system that came up without it has nothing
// to adopt.
func (m *Machine) adopt(target pivot.Target) (pivot.Target, error) {
	if record := m.Progress.Record; record.WasCommitted() {
		if known := withFiles(target, record.Target.Files); known.Same(record.Target) {
			return known, nil
		}
	}
	own, err := m.ownPartition()
	return withFiles(target, m.know(own)), err
}

// withFiles is the target with those files that it does not ask for itself.
func withFiles(target pivot.Target, files []hostfiles.Entry) pivot.Target {
	asked := target.Paths()
	target.Files = slices.Clone(target.Files)
	for _, f := range files {
		if !slices.Contains(asked, f.Path) {
			target.Files = append(target.Files, f)
		}
	}
	return target
}

// ownPartition are the files of the running system's CPU partitioning that it does
// not have from its image: the next image brings its own.
func (m *Machine) ownPartition() ([]hostfiles.File, error) {
	in, err := m.partitionInput(nil)
	if err != nil {
		return nil, err
	}
	paths := slices.DeleteFunc(pinning.Inspect(in).Files, func(path string) bool { return !m.isRegular(path) })
	have, err := hostfiles.ReadAll(m.Host.Root, paths)
	if err != nil {
		return nil, err
	}
	shipped := slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !m.isRegular("/usr" + path) })
	defaults, err := hostfiles.ReadAll(m.Host.Path("/usr"), shipped) // the image's /usr/etc
	if err != nil {
		return nil, err
	}
	var own []hostfiles.File
	for _, path := range paths {
		if d, ok := defaults[path]; !ok || !d.Equal(have[path]) {
			own = append(own, have[path])
		}
	}
	return own, nil
}

// isRegular reports whether a file is one, and not a link, which only libostree carries over.
func (m *Machine) isRegular(path string) bool {
	info, err := os.Lstat(m.Host.Path(path))
	return err == nil && info.Mode().IsRegular()
}
