package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
)

// Client reads objects of an API server. Credentials and transport are client-go's. Requests are made by path and their
// answers decoded here: client-go's own clients link the types of all of Kubernetes, and would make pivotctl more than
// twice as large.
type Client struct {
	http *http.Client
	base *url.URL
}

// Limits of one request: the time until the whole answer is there, the bytes of an answer, and the objects of a
// page.
const (
	requestLimit = 30 * time.Second
	maxAnswer    = 256 << 20
	pageSize     = 250
)

// NewClient returns a client of an API server.
func NewClient(config *rest.Config) (*Client, error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot use the credentials for the API server: %w", err).WithHint("see --kubeconfig")
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot use the address of the API server: %w", err).WithHint("see --kubeconfig")
	}
	return &Client{http: transport, base: base}, nil
}

// errAbsent means that the API server does not have what was asked for: an object, or a kind of objects.
var errAbsent = errors.New("the cluster does not have it")

// read returns the answer to a GET of a path, at most limit bytes. What it says is in the API server's words.
func (c *Client) read(ctx context.Context, path string, query url.Values, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	address := c.base.JoinPath(path)
	address.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	request.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "cannot read %s: %s", path, api.BoundedReason(err.Error())).
			WithHint("see whether the API server answers, and --kubeconfig")
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, fault.New(fault.Unavailable, "cannot read %s: %w", path, err)
	case answer.StatusCode != http.StatusOK:
		return nil, refusal(path, answer, data)
	case int64(len(data)) > limit:
		return nil, fault.New(fault.Refused, "cannot read %s: the answer has more than %d bytes", path, limit)
	}
	return data, nil
}

// refusal returns the error of an answer that is not what was asked for.
func refusal(path string, answer *http.Response, body []byte) error {
	said := metav1.Status{}
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		said.Message = answer.Status
	}
	reason := api.BoundedReason(said.Message)
	switch answer.StatusCode {
	case http.StatusNotFound:
		return fault.New(fault.BadInput, "%w: %s", errAbsent, reason)
	case http.StatusForbidden, http.StatusUnauthorized:
		return fault.New(fault.Refused, "cannot read %s: %s", path, reason).
			WithHint("a reader needs the rights of deploy/fleet/rbac-view.yaml")
	}
	return fault.New(fault.Unavailable, "cannot read %s: %s", path, reason)
}

// list returns all objects of a path, in pages, in the API server's order: by namespace and name. If the list
// changes for longer than the API server remembers, it starts again once.
func list[T any](ctx context.Context, c *Client, path, fields string) ([]T, error) {
	all, expired, err := pages[T](ctx, c, path, fields)
	if expired {
		all, _, err = pages[T](ctx, c, path, fields)
	}
	return all, err
}

func pages[T any](ctx context.Context, c *Client, path, fields string) (all []T, expired bool, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if fields != "" {
		query.Set("fieldSelector", fields)
	}
	for {
		data, err := c.read(ctx, path, query, maxAnswer)
		if err != nil {
			return nil, query.Has("continue"), err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, false, fmt.Errorf("cannot read %s: %w", path, err)
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, false, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}
