package controlplane

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"machine-pivot/test/worlds/testenv"
)

// reservedPort is a port of the loopback interface that no other process gets, also while the API
// server does not run. A socket is bound to it that never listens; with SO_REUSEPORT, as the API server
// also sets it, both can be bound.
type reservedPort struct {
	fd     int
	number string
}

func reservePort() (reservedPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return reservedPort{}, fmt.Errorf("cannot reserve a port: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err != nil {
		return reservedPort{}, errors.Join(fmt.Errorf("cannot reserve a port: %w", err), unix.Close(fd))
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return reservedPort{}, errors.Join(fmt.Errorf("cannot reserve a port: %w", err), unix.Close(fd))
	}
	return reservedPort{fd, strconv.Itoa(bound.(*unix.SockaddrInet4).Port)}, nil
}

func (p reservedPort) release() { _ = unix.Close(p.fd) }

// FreeAddress returns an address of the loopback interface at which nobody listens, for a program that is about
// to be started.
func FreeAddress(t testenv.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
