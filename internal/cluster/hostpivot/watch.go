package hostpivot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"

	"machine-pivot/internal/api"
	"machine-pivot/internal/hostfiles"
)

// Watched is the newest comparison of the unit that watches the host.
type Watched struct {
	Verify
	At time.Time // when its differences were first found, by the host's clock
}

// watchFile is where that unit writes its newest comparison.
const watchFile = dir + "/watch.json"

// Watch implements node.Runner. The unit outlives its agent, as a run does, and the next agent finds its file.
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

// NotifyDrift calls changed whenever the unit that watches the host may have found something else, until ctx ends.
// If that happens without end, it does so some times at once, and then once a minute.
func (s *Systemd) NotifyDrift(ctx context.Context, changed func()) error {
	const atOnce = 10
	return s.notify(ctx, watchFile, rate.NewLimiter(rate.Every(time.Minute), atOnce), changed)
}

// NotifyRun calls ended whenever a run may have ended, until ctx ends.
func (s *Systemd) NotifyRun(ctx context.Context, ended func()) error {
	return s.notify(ctx, resultFile, rate.NewLimiter(rate.Inf, 0), ended)
}

// notify calls changed whenever a file of the host is another one with contents, as often as limit allows, until ctx
// ends. What else happens in its directory, such as what the agent itself does, does not count.
func (s *Systemd) notify(ctx context.Context, file string, limit *rate.Limiter, changed func()) error {
	const longest = 24 * time.Hour // nothing is missed: it is inotify that wakes
	w, err := hostfiles.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	for before := s.written(file); ; {
		if err := w.Paths(s.path("/"), []string{file}); err != nil {
			return err
		}
		if now := s.written(file); !now.Equal(before) { // also what has happened before it was watched
			if before = now; !now.IsZero() {
				if limit.Wait(ctx) == nil {
					changed()
				}
			}
		}
		if err := w.Wait(ctx, longest); ctx.Err() != nil {
			return nil // the normal end
		} else if err != nil {
			return err
		}
	}
}

// written returns when a file of the host was written; the zero time if it has no contents.
func (s *Systemd) written(file string) time.Time {
	info, err := os.Stat(s.path(file))
	if err != nil || info.Size() == 0 {
		return time.Time{}
	}
	return info.ModTime()
}
