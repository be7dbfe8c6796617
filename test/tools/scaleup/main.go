// Command scaleup simulates many first boots at the same time, from one registry that is limited and fails once, and
// prints the result: docs/dev/benchmark.md.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"machine-pivot/test/tools/tool"
	"machine-pivot/test/worlds/scaleup"
)

func main() { os.Exit(tool.Run("rush", command)) }

func command(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var o scaleup.Options
	flags := flag.NewFlagSet("rush", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.Machines, "machines", 1000, "how many machines boot")
	flags.IntVar(&o.Scale, "scale", 2, "how many times faster than real time it runs; too many for the processors, and the result means nothing")
	flags.DurationVar(&o.PowerOn, "power-on", 10*time.Second, "within which all machines begin")
	flags.DurationVar(&o.Transfer, "transfer", 800*time.Second, "which the registry needs to send the image to all of them: bytes / bandwidth")
	flags.IntVar(&o.Transfers, "transfers", 100, "blobs that the registry sends at a time")
	flags.DurationVar(&o.RetryAfter, "retry-after", 10*time.Second, "which it asks those for that it refuses")
	flags.DurationVar(&o.FailsAfter, "fails-after", 200*time.Second, "when the registry fails as a whole")
	flags.DurationVar(&o.FailsFor, "fails-for", time.Minute, "for how long")
	svg := flags.String("svg", "", "write a picture of the requests per second to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.Machines < 1 || o.Scale < 1 {
		return errors.New("wrong arguments; -help lists them")
	}
	if o.Dir, err = os.MkdirTemp("", "rush-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	result, err := scaleup.Run(ctx, o)
	if err != nil {
		return err
	}
	if *svg != "" {
		if err := os.WriteFile(*svg, result.SVG(o), 0o644); err != nil {
			return err
		}
	}
	if err := result.Figures(o).Print(stdout); err != nil {
		return err
	}
	return result.Err()
}
