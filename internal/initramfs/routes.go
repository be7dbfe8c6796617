package initramfs

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// awaitRoute waits for a default route. The kernel notifies it of each change of routes.
func awaitRoute(ctx context.Context) error {
	changes, err := routeChanges(ctx)
	if err != nil {
		return deferred("cannot watch the routes: %w", err)
	}
	for !hasDefaultRoute() { // checked after the subscription, so that no change is missed
		select {
		case <-changes:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// routeChanges returns a channel that receives a value when routes change, until ctx ends
// (rtnetlink(7)).
func routeChanges(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "rtnetlink") // non-blocking, so that Close ends a Read
	groups := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE}
	if err := unix.Bind(fd, groups); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	context.AfterFunc(ctx, func() { _ = socket.Close() }) // ends the goroutine below
	changes := make(chan struct{}, 1)
	go func() {
		buffer := make([]byte, unix.Getpagesize())
		for {
			_, err := socket.Read(buffer)
			if errors.Is(err, unix.ENOBUFS) {
				err = nil // messages were lost, but any change is enough
			}
			if err != nil {
				return
			}
			select {
			case changes <- struct{}{}:
			default: // a notification is already pending
			}
		}
	}()
	return changes, nil
}

// hasDefaultRoute reports whether there is a default route for IPv4 or IPv6.
func hasDefaultRoute() bool {
	return hasRoute("/proc/net/route", isDefaultIPv4) || hasRoute("/proc/net/ipv6_route", isDefaultIPv6)
}

func hasRoute(table string, isDefault func(fields []string) bool) bool {
	text, _ := os.ReadFile(table) // it is missing if the kernel lacks the protocol
	return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool { return isDefault(strings.Fields(line)) })
}

// isDefaultIPv4 reports whether a line of /proc/net/route is a default route. Its fields are
// interface, destination, gateway, flags, three counters, mask.
func isDefaultIPv4(fields []string) bool {
	return len(fields) > 7 && fields[1] == "00000000" && fields[7] == "00000000" && usable(fields[3])
}

// isDefaultIPv6 reports whether a line of /proc/net/ipv6_route is a default route. Its
// fields are destination, its length, source, its length, next hop, metric, two counters,
// flags, interface.
func isDefaultIPv6(fields []string) bool {
	return len(fields) > 9 && strings.Trim(fields[0], "0") == "" && fields[1] == "00" && usable(fields[8])
}

// usable reports whether a route with these flags, in hexadecimal, is up and does not
// reject packets.
func usable(flags string) bool {
	bits, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && bits&unix.RTF_UP != 0 && bits&unix.RTF_REJECT == 0
}
