package view

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
)

// Limits of an archive.
const (
	gatherLimit = 3 * time.Minute
	maxMember   = 32 << 20  // bytes of one file
	maxArchive  = 128 << 20 // bytes of all files before compression
	maxLog      = 1 << 20   // bytes of a log: its end
	logMargin   = 64 << 10
	logLines    = "10000"
	firstMember = "summary.txt"
)

// Gatherer gathers what a report of a problem needs.
type Gatherer struct {
	Client     *Client
	Namespaces []string // of the agents and controllers
	Program    string   // name and version of the program that gathers
	Now        time.Time
}

// Gather writes the archive, a compressed tar file: summary.txt first, then objects by kind, then logs, in a fixed
// order. It has no secrets, as far as a program can know them: see cleaner. What could not be read is named in the
// summary. An error means that the API server does not answer, or that the archive cannot be written.
func (g Gatherer) Gather(ctx context.Context, w io.Writer) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // which never fails
	clean := cleaner{key: key}
	limited, cancel := context.WithTimeout(ctx, gatherLimit)
	defer cancel()
	facts, err := Observe(limited, g.Client, g.Now)
	if err != nil {
		return err
	}
	a := archive{left: maxArchive}
	for _, k := range g.kinds(clean) {
		a.objects(limited, g.Client, k)
	}
	for _, namespace := range g.Namespaces {
		a.logs(limited, g.Client, namespace, clean)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	summary, err := g.summary(facts, a, clean)
	if err != nil {
		return err
	}
	return write(w, append(summary, a.members...), g.Now)
}

// kind is a kind of objects in the archive.
type kind struct {
	member string
	path   string
	fields string
	clean  func([]byte) (any, error)
}

func (g Gatherer) kinds(c cleaner) []kind {
	kinds := []kind{
		{"pools", poolsPath, "", c.object},
		{"rollouts", rolloutsPath, "", c.object},
		{"nodes", nodesPath, "", c.object},
		{"nodesystems", systemsPath, "", c.object},
		{"machineconfignodes", mcnodesPath, "", c.object},
		{"machineconfigs", configsPath, "", c.machineConfig},
		{"containerruntimeconfigs", ctrcfgsPath, "", c.object},
		{"events-of-nodes", eventsPath, aboutNodes, c.object},
	}
	for _, namespace := range g.Namespaces {
		in := "/namespaces/" + url.PathEscape(namespace) + "/"
		kinds = append(kinds,
			kind{namespace + "/events", "/api/v1" + in + "events", "", c.object},
			kind{namespace + "/leases", "/apis/coordination.k8s.io/v1" + in + "leases", "", c.object},
			kind{namespace + "/deployments", "/apis/apps/v1" + in + "deployments", "", c.object},
			kind{namespace + "/daemonsets", "/apis/apps/v1" + in + "daemonsets", "", c.object},
			kind{namespace + "/pods", "/api/v1" + in + "pods", "", c.object})
	}
	return kinds
}

// member is a file of the archive.
type member struct {
	name string
	data []byte
}

// archive is what has been gathered.
type archive struct {
	members []member
	left    int
	missing []string
}

// add adds a file if there is room for it.
func (a *archive) add(name string, data []byte) {
	if len(data) > maxMember || len(data) > a.left {
		a.miss(name, fmt.Errorf("%s are more than there is room for", printable.Size(int64(len(data)))))
		return
	}
	a.left -= len(data)
	a.members = append(a.members, member{name, data})
}

func (a *archive) miss(name string, err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("there was no time for it")
	}
	a.missing = append(a.missing, name+": "+err.Error())
}

// objects adds all objects of a kind, as a list in JSON.
func (a *archive) objects(ctx context.Context, client *Client, k kind) {
	name := "objects/" + k.member + ".json"
	found, err := list[json.RawMessage](ctx, client, k.path, k.fields)
	if err != nil {
		a.miss(name, err)
		return
	}
	cleaned := make([]any, 0, len(found))
	for _, text := range found {
		one, err := k.clean(text)
		if err != nil {
			a.miss(name, err)
			return
		}
		cleaned = append(cleaned, one)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(cleaned); err != nil {
		a.miss(name, err)
		return
	}
	a.add(name, printable.JSON(out.Bytes()))
}

// logs adds the ends of the logs of all containers in a namespace, and of the runs before if they have restarted.
func (a *archive) logs(ctx context.Context, client *Client, namespace string, clean cleaner) {
	type container struct {
		Name         string `json:"name"`
		RestartCount int    `json:"restartCount"`
	}
	pods, err := list[struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Containers []container `json:"containerStatuses"`
			Init       []container `json:"initContainerStatuses"`
		} `json:"status"`
	}](ctx, client, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods", "")
	if err != nil {
		return // it is missing as a kind of objects already
	}
	for _, pod := range pods {
		for _, c := range append(pod.Status.Init, pod.Status.Containers...) {
			path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(pod.Metadata.Name) + "/log"
			query := url.Values{"container": {c.Name}, "tailLines": {logLines}, "timestamps": {"true"}}
			name := "logs/" + namespace + "/" + pod.Metadata.Name + "." + c.Name
			a.log(ctx, client, name+".log", path, query, clean)
			if c.RestartCount > 0 {
				query.Set("previous", "true")
				a.log(ctx, client, name+".previous.log", path, query, clean)
			}
		}
	}
}

func (a *archive) log(ctx context.Context, client *Client, name, path string, query url.Values, clean cleaner) {
	data, err := client.read(ctx, path, query, maxMember)
	if err != nil {
		a.miss(name, err)
		return
	}
	// The margin is cleaned and cut off again: half a secret of several lines is not recognized.
	a.add(name, end(clean.log(end(data, maxLog+logMargin)), maxLog))
}

// end returns the lines at the end of a text that are together at most limit bytes long.
func end(text []byte, limit int) []byte {
	if len(text) <= limit {
		return text
	}
	text = text[len(text)-limit:]
	return text[bytes.IndexByte(text, '\n')+1:]
}

// summary returns the files at the front: the status for people and for programs.
func (g Gatherer) summary(f Facts, a archive, clean cleaner) ([]member, error) {
	status, _ := Judge(f, "")
	var text bytes.Buffer
	fmt.Fprintf(&text, "gathered by %s at %s\n\n", printable.Line(g.Program), g.Now.UTC().Format(time.RFC3339))
	status.WriteText(&text, 0)
	fmt.Fprintf(&text, "\nfiles:\n")
	for _, m := range a.members {
		fmt.Fprintf(&text, "  %s, %s\n", printable.Line(m.name), printable.Size(int64(len(m.data))))
	}
	for _, missing := range a.missing {
		fmt.Fprintf(&text, "missing: %s\n", printable.Line(missing))
	}
	document, err := api.Marshal(api.Fleet, status)
	if err != nil {
		return nil, err
	}
	var parsed any
	if err := json.Unmarshal(document, &parsed); err != nil {
		return nil, err
	}
	document, err = json.MarshalIndent(clean.value(parsed), "", " ")
	return []member{{firstMember, clean.log(text.Bytes())}, {"status.json", printable.JSON(document)}}, err
}

// write writes files as a compressed tar file, those after the first two sorted by their names.
func write(w io.Writer, members []member, at time.Time) error {
	slices.SortStableFunc(members[2:], func(a, b member) int { return cmp.Compare(a.name, b.name) })
	zipped := gzip.NewWriter(w)
	out := tar.NewWriter(zipped)
	for _, m := range members {
		header := &tar.Header{Name: "pivot-gather/" + strings.ReplaceAll(m.name, "..", "_"), Mode: 0o600, Size: int64(len(m.data)), ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatPAX}
		if err := out.WriteHeader(header); err != nil {
			return fault.New(fault.CannotWrite, "cannot write the archive: %w", err)
		}
		if _, err := out.Write(m.data); err != nil {
			return fault.New(fault.CannotWrite, "cannot write the archive: %w", err)
		}
	}
	if err := errors.Join(out.Close(), zipped.Close()); err != nil {
		return fault.New(fault.CannotWrite, "cannot write the archive: %w", err)
	}
	return nil
}
