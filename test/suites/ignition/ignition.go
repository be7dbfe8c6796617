// Package ignition runs the real Ignition on a directory, as in a machine's initramfs.
package ignition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program is Debian's Ignition, which supports config versions up to 3.3.0. Only root can run it.
const Program = "/usr/lib/dracut/modules.d/30ignition/ignition"

// Script returns a shell script that runs the Ignition stages that write files and units. They get a config file, and
// the system below a root directory, where owners are looked up. Ignition relabels what it writes; the script provides
// an empty SELinux policy during the run, so that nothing is labelled.
func Script(config, root string) string {
	return fmt.Sprintf(`set -e
work=$(mktemp -d) policy=%[2]s/etc/selinux
printf '#!/bin/sh\nexec cat >/dev/null\n' >$work/setfiles; chmod 755 $work/setfiles
mkdir -p $policy/targeted/contexts/files
echo SELINUXTYPE=targeted >$policy/config; : >$policy/targeted/contexts/files/file_contexts
export PATH=$work:$PATH IGNITION_CONFIG_FILE=%[1]s
for stage in fetch files; do
	%[3]s -platform file -stage $stage -root %[2]s -log-to-stdout -config-cache $work/cache.json -state-file $work/state -neednet $work/neednet
done
rm -r $work $policy
`, config, root, Program)
}

// Apply runs the script with an empty root directory. Afterwards it contains only what Ignition has
// written.
func Apply(ctx context.Context, config []byte, root string) (err error) {
	work, err := os.MkdirTemp("", "ignition-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	file, etc := filepath.Join(work, "config.ign"), filepath.Join(root, "etc")
	owners := map[string]string{filepath.Join(etc, "passwd"): "root:x:0:0:root:/root:/bin/sh\n", filepath.Join(etc, "group"): "root:x:0:\n"}
	err = errors.Join(os.MkdirAll(etc, 0o755), os.WriteFile(file, config, 0o600))
	for path, text := range owners {
		err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
	}
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", Script(file, root)).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot apply the Ignition config: %w\n%s", err, out[max(0, len(out)-2000):])
	}
	for path := range owners {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
