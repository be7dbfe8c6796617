package registry

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// portHold reserves a TCP port of 127.0.0.1 while no server listens on it. It is a socket that is
// bound but does not listen: connections are refused, and a listener can be bound to the same
// port, because both set SO_REUSEADDR.
type portHold struct {
	fd, port int
}

func holdPort(port int) (*portHold, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot hold port %d: %w", port, err)
	}
	hold := &portHold{fd: fd}
	if err := hold.bind(port); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot hold port %d: %w", port, err)
	}
	return hold, nil
}

func (h *portHold) bind(port int) error {
	if err := unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(h.fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	name, err := unix.Getsockname(h.fd)
	if err != nil {
		return err
	}
	h.port = name.(*unix.SockaddrInet4).Port
	return nil
}

func (h *portHold) release() error { return unix.Close(h.fd) }
