// The program grafana checks files with Grafana dashboards against the types that Grafana publishes: a dashboard, its
// panels and their queries have no unknown member, and each that they need. It is a module of its own, so that these
// types are no dependency of the project.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins() // the types of panels and of queries
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s:\n%v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var d dashboard.Dashboard
	// What has no problems is an empty list, but not a nil error.
	var problems cog.BuildErrors
	if err := d.UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &problems) || len(problems) > 0) {
		return err
	}
	return d.Validate()
}
