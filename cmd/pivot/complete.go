package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// completeImage completes IMAGE with the images that this machine knows, or else with file
// names, for images on local media.
func completeImage(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	root, err := cmd.Flags().GetString("root")
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return knownImages(root), cobra.ShellCompDirectiveDefault
}

// knownImages returns the references of the images that a machine runs, will run, or was asked
// to run. It ignores errors.
func knownImages(root string) []string {
	var images []pivot.Image
	if state, err := host.New(root).Observe(context.Background(), pivot.Target{}); err == nil {
		images = append(images, state.Booted.Image, state.Default.Image)
	}
	if journal, err := pivot.JournalIn(root).Load(); err == nil {
		images = append(images, journal.Target.Image)
		for _, over := range journal.History {
			images = append(images, over.Image)
		}
	}
	var names []string
	for _, image := range images {
		if name := image.Reference().String(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
