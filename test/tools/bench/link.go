package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// link is a network link to the registry: a proxy on the loopback interface that delays what it
// forwards and limits its rate. It stands for a network in time only: connections begin at full
// speed and lose nothing.
type link struct {
	linkFacts
	to      string // address of the registry
	accepts net.Listener

	mu   sync.Mutex
	free time.Time // when the link has sent all that it was given
}

// linkFacts describe a link. The zero value is none.
type linkFacts struct {
	Rate    int64         `json:"bytes_per_second,omitempty"` // to the client, of all connections together; 0: no limit
	Latency time.Duration `json:"round_trip_ns,omitempty"`    // half of it in each direction
}

// String formats the facts as parseLink reads them.
func (f linkFacts) String() string {
	if f.Rate == 0 {
		return f.Latency.String()
	}
	return fmt.Sprintf("%dMb/s,%s", f.Rate*8/1e6, f.Latency)
}

// linkBuffer is the most that is read at once, in bytes.
const linkBuffer = 64 << 10

// linkQueue is how many buffers are on their way in one direction of a connection: so 128 MB, which
// is more than 1 Gb/s sends within 200 ms.
const linkQueue = 2048

// parseLink parses a rate and a round trip time, such as 100Mb/s,20ms. Either may be missing.
func parseLink(text string) (l linkFacts, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if bits, ok := strings.CutSuffix(part, "b/s"); ok {
			l.Rate, err = parseRate(bits)
		} else {
			l.Latency, err = time.ParseDuration(part)
		}
		if err != nil {
			return linkFacts{}, fmt.Errorf("%q is no link such as 100Mb/s,20ms: %w", text, err)
		}
	}
	return l, nil
}

// parseRate returns the bytes per second of a rate in bits per second, such as 100M.
func parseRate(bits string) (int64, error) {
	number, unit := strings.TrimRight(bits, "MG"), int64(1e6)
	switch strings.TrimPrefix(bits, number) {
	case "M":
	case "G":
		unit = 1e9
	default:
		return 0, errors.New("the unit is neither Mb/s nor Gb/s")
	}
	n, err := strconv.ParseInt(number, 10, 16)
	if err == nil && n < 1 {
		err = errors.New("no rate")
	}
	return n * unit / 8, err
}

// is reports whether the link differs from none.
func (l *link) is() bool { return l.linkFacts != linkFacts{} }

// start begins to forward connections to the registry at a port, and returns the link's own port.
func (l *link) start(registry int) (port int, err error) {
	l.to = net.JoinHostPort("127.0.0.1", strconv.Itoa(registry))
	if l.accepts, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return 0, err
	}
	go l.serve() // ends with close
	return l.accepts.Addr().(*net.TCPAddr).Port, nil
}

func (l *link) close() error {
	if l.accepts == nil {
		return nil
	}
	return l.accepts.Close()
}

func (l *link) serve() {
	for {
		client, err := l.accepts.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp4", l.to)
		if err != nil {
			_ = client.Close() // the client reports it
			continue
		}
		go l.forward(server, client, 0)
		go l.forward(client, server, l.Rate)
	}
}

// forward copies one direction of a connection, and closes both ends after it. Errors are ignored:
// the ends see them.
func (l *link) forward(to, from net.Conn, rate int64) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, linkQueue)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, linkBuffer)
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{buffer[:n], l.sent(n, rate).Add(l.Latency / 2)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range pieces { // lets the reader end
	}
}

// sent waits until the link has room for n bytes, and returns when they will be sent.
func (l *link) sent(n int, rate int64) time.Time {
	now := time.Now()
	if rate == 0 {
		return now
	}
	l.mu.Lock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	free := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(free.Add(-linkAhead)))
	return free
}

// linkAhead is how long before its time data are taken from the sender, so that the link is never idle
// because this program wakes up late.
const linkAhead = 20 * time.Millisecond

// transfer returns how long the link takes for a number of bytes; 0 if it has no limit.
func (f linkFacts) transfer(bytes int64) float64 {
	if f.Rate == 0 {
		return 0
	}
	return float64(bytes)/float64(f.Rate) + f.Latency.Seconds()
}
