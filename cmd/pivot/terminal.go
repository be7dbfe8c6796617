package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/status"
)

// showProgress is a line on a terminal that says how an import goes; nil, which
// shows nothing, if w is not one.
func showProgress(w io.Writer, now func() time.Time) func(osimage.Progress) {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return nil
	}
	var transfer status.Transfer
	return func(p osimage.Progress) {
		fmt.Fprintf(f, "\r\x1b[K%s, %d objects", transfer.Text(now(), p.FetchedBytes, p.TotalBytes), p.Objects)
		if p.Done {
			fmt.Fprintln(f)
		}
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
