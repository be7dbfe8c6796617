package hands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"

	"machine-pivot/day2/watch"
	"machine-pivot/internal/api"
)

// Watched is the newest comparison of the unit that watches the host.
type Watched struct {
	Verify
	At time.Time // when its differences were first found, by the host's clock
}

// watchFile is where that unit writes its newest comparison.
const watchFile = dir + "/watch.json"

// Watch implements node.Hands. The unit outlives its agent, as a run does, and the next agent finds its file.
func (s *Systemd) Watch(ctx context.Context, on bool) error {
	if !on && s.watched() == nil {
		return nil // a host that is not watched is not even asked
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !on {
		err := s.endUnit(ctx, conn, watchUnit)
		if gone := os.Remove(s.path(watchFile)); err == nil && !errors.Is(gone, os.ErrNotExist) {
			err = gone
		}
		return err
	}
	u, err := stateOf(ctx, conn, watchUnit)
	if err != nil || u.running {
		return err
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	err = s.startUnit(ctx, conn, service{
		name: watchUnit, description: "pivot for the node agent: tells it when the machine differs from its MachineConfig",
		args: []string{s.Program, "verify", "--watch", "--into", watchFile}, differs: true,
	})
	if err == nil && u.failure != "" {
		err = fmt.Errorf("%s has ended: %s; it is started again; journalctl -u %s on the host says more", watchUnit, u.failure, watchUnit)
	}
	return err
}

// watched returns the newest comparison of the unit that watches the host; nil if there is none. A document
// that cannot be read is none: the agent itself compares, too.
func (s *Systemd) watched() *Watched {
	info, err := os.Stat(s.path(watchFile))
	if err != nil {
		return nil
	}
	data, err := s.read(watchFile)
	w := Watched{At: info.ModTime()}
	if err != nil || decode(data, api.Verify, &w.Verify) != nil {
		return nil
	}
	return &w
}

// Notify calls changed whenever the unit that watches the host may have found something else, until ctx ends. If
// that happens without end, it does so some times at once, and then once a minute.
func (s *Systemd) Notify(ctx context.Context, changed func()) error {
	const (
		longest = 24 * time.Hour // nothing is missed: it is inotify that wakes
		atOnce  = 10
	)
	limit := rate.NewLimiter(rate.Every(time.Minute), atOnce)
	w, err := watch.New()
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		if err := w.Paths(s.path("/"), []string{watchFile}); err != nil {
			return err
		}
		err := w.Wait(ctx, longest)
		if err == nil {
			err = limit.Wait(ctx)
		}
		if ctx.Err() != nil {
			return nil // the normal end
		}
		if err != nil {
			return err
		}
		changed()
	}
}
