package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// webPort is where the pods of the service web listen, each in the network of its node.
const webPort = "8080"

// loopback returns an address of this host on which nobody listens at webPort: one of 16 million.
func loopback(t *testing.T) string {
	t.Helper()
	address := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254))
	l, err := net.Listen("tcp", net.JoinHostPort(address, webPort))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// webClient is a client outside of the cluster that asks the service web again and again: each time one of
// its endpoints that are ready.
type webClient struct {
	client    kubernetes.Interface
	addresses map[string]string // of the nodes, on this host

	mu       sync.Mutex
	answers  map[string]int // by the name of the node
	failures []string
}

// start starts the client, until stop is called.
func (c *webClient) start() (stop func()) {
	c.answers = map[string]int{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.ask(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// ask asks once, and counts the answer. What is interrupted by stop does not count.
func (c *webClient) ask(ctx context.Context) {
	node, err := c.request(ctx)
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failures = append(c.failures, fmt.Sprintf("%s %v", time.Now().Format(time.TimeOnly), err))
		return
	}
	c.answers[node]++
}

// request asks one of the endpoints that are ready, on a new connection, and returns the node that answers.
func (c *webClient) request(ctx context.Context) (node string, err error) {
	ready, err := readyNodes(ctx, c.client)
	if err != nil {
		return "", err
	}
	if len(ready) == 0 {
		return "", errors.New("no endpoint is ready")
	}
	node = ready[rand.N(len(ready))]
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(c.addresses[node], webPort), nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if got := strings.TrimSpace(string(text)); err == nil && got != node {
		err = fmt.Errorf("node %s answers as %q", node, got)
	}
	return node, err
}

// readyNodes returns the nodes of the endpoints of the service web that are ready.
func readyNodes(ctx context.Context, client kubernetes.Interface) (nodes []string, err error) {
	slices, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready && e.NodeName != nil {
				nodes = append(nodes, *e.NodeName)
			}
		}
	}
	return nodes, nil
}

// answered returns how often a node has answered.
func (c *webClient) answered(node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[node]
}
