// Package input reads the files that a user names on a command line. Three rules hold for all: a size is bounded, a
// device is not opened, and the wait for a pipe or standard input ends with the context, as after ^C.
package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/problem"
)

// Stdin is the path of the standard input.
const Stdin = "-"

// Maximum sizes, in bytes.
const (
	MaxText    = 8 << 20   // of a file with text
	MaxProgram = 256 << 20 // of a program; those of this project have less than 100 MiB
)

// File is a file that a user names.
type File struct {
	What  string // what the user names, for messages: "the lock file"
	Path  string
	Max   int       // its size is at most this, in bytes; 0: MaxText
	Stdin io.Reader // what the path Stdin stands for; nil: a file of this name
}

// Read returns the content. The error is of kind fault.BadInput, unless the context has ended.
func (f File) Read(ctx context.Context) ([]byte, error) {
	data, err := f.bounded(ctx)
	switch {
	case err == nil:
		return data, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("cannot read %s %s: %w", f.What, f.Path, err)
	}
	return nil, fault.New(fault.BadInput, "cannot read %s %s: %w", f.What, f.Path, err)
}

// Check returns an error for a file that a library will read by its path, at any time and whole, if that could wait or
// have no end. It must be a regular file within the size. The error is the cause alone.
func (f File) Check() error {
	info, err := os.Stat(f.Path)
	switch {
	case err != nil:
		return bare(err)
	case info.Size() > int64(f.limit()):
		return f.tooLarge()
	case !info.Mode().IsRegular() && !isNull(info):
		return fault.New(fault.BadInput, "it is no regular file, and is read more than once").WithHint("give a regular FILE")
	}
	return nil
}

// Reported is Read for commands that report all problems of their inputs at once: a file that cannot be
// read is one of the problems, and ok is false. The error is that of a context that has ended.
func (f File) Reported(ctx context.Context, report *problem.Report) (data []byte, ok bool, err error) {
	data, err = f.bounded(ctx)
	switch {
	case err == nil:
		return data, true, nil
	case ctx.Err() != nil:
		return nil, false, fmt.Errorf("cannot read %s %s: %w", f.What, f.Path, err)
	}
	report.Add(Problem(f.Path, err))
	return nil, false, nil
}

// Problem returns the problem of a file or directory that cannot be read because of an error.
func Problem(path string, err error) problem.Problem {
	err = bare(err)
	p := problem.Errorf("$", "it cannot be read: %v", err).WithHint(fault.HintOf(err))
	p.File = path
	return p
}

// bounded is Read with only the cause as error.
func (f File) bounded(ctx context.Context) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	// Neither the open of a pipe nor a read can be interrupted. So after the end of the context the
	// goroutine may wait on, until the program exits.
	done := make(chan result, 1)
	go func() {
		data, err := f.content()
		done <- result{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-done:
		return r.data, bare(r.err)
	}
}

func (f File) content() ([]byte, error) {
	if f.Path == Stdin && f.Stdin != nil {
		return f.readAll(f.Stdin)
	}
	file, err := open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > int64(f.limit()) { // do not read it for nothing
		return nil, f.tooLarge()
	}
	return f.readAll(file)
}

func (f File) readAll(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, int64(f.limit())+1))
	if err == nil && len(data) > f.limit() {
		return nil, f.tooLarge()
	}
	return data, err
}

func (f File) limit() int { return cmp.Or(f.Max, MaxText) }

func (f File) tooLarge() error {
	return fault.New(fault.BadInput, "it has more than %d bytes", f.limit()).WithHint("give another FILE: no input of this command is so large")
}

// open opens a regular file or a pipe; users name pipes on purpose, as with the shell's <(command). The
// kind is looked at before, because to open a device can have an effect, as a watchdog's does.
func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch kind := info.Mode().Type(); {
	case kind == 0, kind == fs.ModeNamedPipe, isNull(info):
		return os.Open(path)
	case kind == fs.ModeDir:
		return nil, fault.New(fault.BadInput, "it is a directory").WithHint("give a FILE instead")
	case kind == fs.ModeSocket:
		return nil, fault.New(fault.BadInput, "it is a socket").WithHint("give a FILE or a pipe")
	}
	return nil, fault.New(fault.BadInput, "it is a device").WithHint("give a FILE or a pipe")
}

// isNull reports whether a file is the null device, which scripts name for an empty file.
func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(null, info)
}

// bare returns an error of a system call without the path, which the message has already, and with a hint.
func bare(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.BadInput, "%w", err).WithHint("run it as a user who may read it, for example with sudo")
	}
	return err
}
