package buildcache

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Program builds a static program and puts it into a file. flags are those of go build. Go links what "go run" runs only
// once, where "go build" would link it for each caller, which takes ten times as much processor time.
func Program(ctx context.Context, file, pkg string, flags ...string) error {
	argv := append([]string{"run", "-exec", "install -m 755 -T"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(argv, pkg, file)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
