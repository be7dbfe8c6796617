// Package rehearse runs programs of a system that has not been deployed yet, to learn before the commit whether this
// machine can start it. They run in the system's own tree, in namespaces of their own, where they can change nothing
// and reach nothing. A fact is asked of the program that will read it, not of a model.
package rehearse

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"machine-pivot/internal/ostree"
)

// Limit is how long a program may take.
const Limit = 10 * time.Second

// Stage is where systems are rehearsed: an ostree repository with their commits.
type Stage struct {
	Self  string        // this program; its main function calls Inside first
	Repo  string        // path of the repository
	Limit time.Duration // for each program; 0: Limit
}

// ending is how a program ended.
type ending struct {
	Missing bool           // the tree has no such program
	Errno   syscall.Errno  // why it could not be started; 0: it was
	Status  int            // its exit status; negative if a signal killed it
	Signal  syscall.Signal // that killed it; 0: none
	Late    bool           // it took too long, and was killed
	Loud    bool           // it said too much, and was cut off
	Said    string         // the beginning of its output
}

// run runs programs of a commit, one after the other. files are there for them, by their paths. The error says why
// they could not be run. After one that takes too long, the rest is not run: it counts as late, too.
func (s Stage) run(ctx context.Context, commit ostree.Checksum, files map[string]File, programs ...[]string) (ended []ending, err error) {
	for len(ended) < len(programs) {
		if len(ended) > 0 && ended[len(ended)-1].Late {
			ended = append(ended, ending{Late: true})
			continue
		}
		more, err := s.runSome(ctx, asked{Repo: s.Repo, Commit: commit, Files: files, Programs: programs[len(ended):], Limit: cmp.Or(s.Limit, Limit)})
		if err != nil {
			return nil, err
		}
		ended = append(ended, more...)
	}
	return ended, nil
}

// runSome runs programs, at least one, until one has left processes behind, or takes too long.
func (s Stage) runSome(ctx context.Context, a asked) (ended []ending, err error) {
	const building = time.Minute // a second on an idle machine
	ctx, cancel := context.WithTimeoutCause(ctx, building+time.Duration(len(a.Programs))*(a.Limit+time.Second), errors.New("it takes too long"))
	defer cancel()
	out, complaint, err := aside().Start(ctx, s.Self, a)
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint))
	}
	if err != nil {
		return nil, err
	}
	for results := json.NewDecoder(bytes.NewReader(out)); ; {
		var e ending
		if err := results.Decode(&e); errors.Is(err, io.EOF) && len(ended) > 0 {
			return ended, nil
		} else if err != nil {
			return nil, fmt.Errorf("its results cannot be read: %w", err)
		}
		ended = append(ended, e)
	}
}
