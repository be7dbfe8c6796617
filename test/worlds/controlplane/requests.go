package controlplane

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
)

// Request is a request that the API server has answered. A watch is answered when it ends.
type Request struct {
	Verb       string // of the API: get, list, watch, create, update, patch, delete, deletecollection
	Resource   string // in the plural; with a subresource as pods/eviction; "" for other paths
	Namespace  string
	Name       string
	Status     int // of HTTP
	RequestURI string
}

// Requests returns the requests of a user, in the order of the answers.
func (c *ControlPlane) Requests(user string) (requests []Request) {
	c.t.Helper()
	text, err := os.ReadFile(c.path(auditLog))
	if err != nil {
		c.t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var event struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        struct{ Resource, Subresource, Namespace, Name string }
			ResponseStatus   struct{ Code int }
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.User.Username != user {
			continue // of somebody else, or half written
		}
		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		requests = append(requests, Request{event.Verb, resource, event.ObjectRef.Namespace, event.ObjectRef.Name, event.ResponseStatus.Code, event.RequestURI})
	}
	return requests
}
