// The program pod is what the containers of the test's pods run: "pod serve" is a web server that answers with the name
// of its node. With any other arguments it does nothing: so the same image serves for the container that holds the
// namespaces of a pod. Both end at SIGTERM.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

// address is where the web server listens, in the network of its pod.
const address = ":8080"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == "serve" {
		return serve(ctx)
	}
	<-ctx.Done()
	return nil
}

// serve answers until ctx is done, and then all requests that it has begun.
func serve(ctx context.Context) error {
	server := http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, os.Getenv("NODE_NAME"))
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.Background())
	}
}
