package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// relay connects a box with ports of this host's 127.0.0.1.
type relay struct {
	listeners []net.Listener
	accepting sync.WaitGroup
}

// newRelay listens on the ports at HostAddress in the network namespace of a process. The address need not be there
// yet. The relay is never nil.
func newRelay(ctx context.Context, pid int, ports []int) (*relay, error) {
	r := &relay{}
	failed := make(chan error, 1)
	go func() {
		// The thread stays locked, so it ends with this goroutine: no other may run in the box's namespace.
		runtime.LockOSThread()
		failed <- r.listen(ctx, pid, ports)
	}()
	if err := <-failed; err != nil {
		return r, errors.Join(fmt.Errorf("cannot give a box a network: %w", err), r.close())
	}
	for i, listener := range r.listeners {
		r.accepting.Go(func() { accept(listener, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i]))) })
	}
	return r, nil
}

// listen moves the calling thread into the namespace.
func (r *relay) listen(ctx context.Context, pid int, ports []int) error {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var option error
		err := c.Control(func(fd uintptr) { option = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(err, option)
	}}
	for _, port := range ports {
		listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort(HostAddress, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		r.listeners = append(r.listeners, listener)
	}
	return nil
}

// accept connects each connection with one to an address of this host, until the listener is closed.
func accept(listener net.Listener, address string) {
	for {
		inside, err := listener.Accept()
		if err != nil {
			return
		}
		go join(inside.(*net.TCPConn), address)
	}
}

// join connects a connection with one to an address. If nobody listens there, the box sees a reset.
func join(inside *net.TCPConn, address string) {
	defer inside.Close()
	outside, err := net.Dial("tcp4", address)
	if err != nil {
		_ = inside.SetLinger(0)
		return
	}
	defer outside.Close()
	var both sync.WaitGroup
	both.Go(func() { pass(outside.(*net.TCPConn), inside) })
	both.Go(func() { pass(inside, outside.(*net.TCPConn)) })
	both.Wait()
}

// pass copies one direction, and then says that no more comes. After an error both ends are reset.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.SetLinger(0), from.SetLinger(0)
		_, _ = to.Close(), from.Close()
		return
	}
	_ = to.CloseWrite()
}

// close may be called twice.
func (r *relay) close() error {
	var err error
	for _, listener := range r.listeners {
		err = errors.Join(err, listener.Close())
	}
	r.listeners = nil
	r.accepting.Wait()
	return err
}
