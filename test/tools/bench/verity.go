package main

// sealed is pivot with a repository that gives each object fs-verity. In the table its row shows what that costs,
// beside pivot's own, or what is missing. The file system of -dir must have the feature (mkfs.ext4 -O verity), and the
// kernel CONFIG_FS_VERITY.
const (
	sealed       = "pivot, fs-verity"
	sealedScript = "printf '[ex-integrity]\\nfsverity=yes\\n' >>repo/config\n" + pivotScript
)

// seals returns pivot with fs-verity and the image chunked, if that is asked for.
func (w *world) seals() []*contender {
	i, there := w.images[chunkedImage]
	if !w.verity || !there {
		return nil
	}
	return []*contender{{name: sealed, rival: true, steps: []step{{image: i, output: repoDir, phases: []phase{{"import", sealedScript}}}}}}
}
