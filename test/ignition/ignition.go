// Package ignition runs the real Ignition as it runs in a machine's initramfs, on
// a directory.
package ignition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program is Debian's Ignition, which knows the versions up to 3.3.0 of its configs.
// It is for root only.
const Program = "/usr/lib/dracut/modules.d/30ignition/ignition"

// Apply runs the stages that write files and units, with an empty directory as
// the root of the machine's system. What is there afterwards Ignition has written.
func Apply(ctx context.Context, config []byte, root string) (err error) {
	work, err := os.MkdirTemp("", "ignition-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	file, etc := filepath.Join(work, "config.ign"), filepath.Join(root, "etc")
	// It looks owners up in the system, and relabels what it has written; here there
	// is no policy to label by.
	for path, text := range map[string]string{
		file:                                 string(config),
		filepath.Join(work, "setfiles"):      "#!/bin/sh\nexec cat >/dev/null\n",
		filepath.Join(etc, "passwd"):         "root:x:0:0:root:/root:/bin/sh\n",
		filepath.Join(etc, "group"):          "root:x:0:\n",
		filepath.Join(etc, "selinux/config"): "SELINUXTYPE=targeted\n",
		filepath.Join(etc, "selinux/targeted/contexts/files/file_contexts"): "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return err
		}
	}
	for _, stage := range []string{"fetch", "files"} {
		cmd := exec.CommandContext(ctx, Program, "-platform", "file", "-stage", stage, "-root", root, "-log-to-stdout",
			"-config-cache", filepath.Join(work, "cache.json"), "-state-file", filepath.Join(work, "state"), "-neednet", filepath.Join(work, "neednet"))
		cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+file, "PATH="+work+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot apply the Ignition config: stage %s: %w\n%s", stage, err, out[max(0, len(out)-2000):])
		}
	}
	for _, name := range []string{"passwd", "group", "selinux"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(etc, name)))
	}
	return err
}
