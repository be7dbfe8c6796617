package kube

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// The bounds of a list: no kubelet runs as many pods, but those that have finished stay until somebody
// deletes them.
const (
	pageSize = 200
	maxPages = 100
)

// look reads the node and its pods, and judges them.
func (d *Drainer) look(ctx context.Context) (f found, err error) {
	f.stopped = report{}
	if f.on, err = d.Cluster.Node(ctx); err != nil {
		return f, err
	}
	what := "read the pods of the node " + d.Cluster.Name
	pods, err := list[corev1.Pod](ctx, d, what, "/api/v1/pods", "spec.nodeName="+d.Cluster.Name)
	d.sight(pods, f.on)
	for i := range pods {
		v, why := d.judge(&pods[i], f.on)
		f.sort(&pods[i], v, why)
	}
	return f, err
}

// list reads all objects below a path that a field selector selects, page by page; "" selects all.
func list[T any](ctx context.Context, d *Drainer, what, path, selector string) (all []T, err error) {
	next := ""
	for range maxPages {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		r := d.Cluster.API.Get().AbsPath(path).Param("limit", strconv.Itoa(pageSize))
		if selector != "" {
			r = r.Param("fieldSelector", selector)
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		if err := d.Cluster.do(ctx, r, what, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("cannot %s: there are more than %d", what, maxPages*pageSize)
}
