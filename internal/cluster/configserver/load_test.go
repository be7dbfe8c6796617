package configserver

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/machineconfig/ignition"
)

// asServer is the environment variable that makes this test program a server: "open" as pivotctl config
// serve, "token" as pivot-fleet server. So the benchmark sees the server's processor time and memory apart
// from those of its clients.
const asServer = "PIVOT_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asServer); kind != "" {
		if err := serveUntilEOF(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// configSize is the size of a served config in bytes: that of a cluster's worker.
const configSize = 100 << 10

// serveUntilEOF serves a config over TLS, prints its address, and ends with its standard input.
func serveUntilEOF(kind string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until its end
		cancel()
	}()
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	config, report := ignition.Parse([]byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large","contents":{"source":"data:,` + strings.Repeat("x", configSize) + `"}}]}}`))
	if report.Failed() {
		return report.Err("the config")
	}
	m := &authored.MachineConfig{}
	m.Spec.Config = &config
	if err := m.Render("worker"); err != nil {
		return err
	}
	s := &provision.Server{
		Load: func(context.Context) (provision.Content, error) {
			return provision.Content{Roles: map[string]*authored.MachineConfig{"worker": m}, Certificate: certificate}, nil
		},
		Stamp: func() (string, error) { return "", nil }, Log: func(string) {},
		MaxConnections: 8192, MaxPerAddress: 2048,
	}
	if kind == "token" {
		a := &apiServer{is: newToken("secret", "worker", provision.MaxUses)}
		g := newGate(a, noon)
		g.set(a.is)
		s.Guard = g
	}
	if err := s.Reload(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return s.Serve(ctx, listener)
}

func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// server is a running server process.
type server struct {
	address string
	pid     int
	clients atomic.Int32
}

func startServer(b *testing.B, kind string) *server {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asServer+"="+kind), os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return &server{address: strings.TrimSpace(address), pid: cmd.Process.Pid}
}

// connect opens a connection as a new machine, which has an address of its own, and requests the config.
func (s *server) connect() (net.Conn, error) {
	n := s.clients.Add(1)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n%5000/250), byte(n%250+1))}}
	c, err := tls.DialWithDialer(&dialer, "tcp4", s.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(c, "GET /config/worker HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nAccept: application/vnd.coreos.ignition+json;version=3.4.0\r\n\r\n")
	return c, err
}

// machine is one machine that gets its config.
func (s *server) machine() error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 200 || n < configSize {
		return fmt.Errorf("status %d, %d bytes, %w", response.StatusCode, n, err)
	}
	return nil
}

// processorTime returns the server's processor time so far.
func (s *server) processorTime(b *testing.B) time.Duration {
	fields := strings.Fields(s.proc(b, "stat"))
	user, err1 := strconv.Atoi(fields[13])
	system, err2 := strconv.Atoi(fields[14])
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// resident returns the server's memory in bytes.
func (s *server) resident(b *testing.B) int {
	pages, err := strconv.Atoi(strings.Fields(s.proc(b, "statm"))[1])
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func (s *server) proc(b *testing.B, name string) string {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.pid, name))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// BenchmarkServer is new machines, each with a connection of its own, over TLS. The API server that counts a
// token's uses is a stand-in without latency.
func BenchmarkServer(b *testing.B) {
	for _, kind := range []string{"open", "token"} {
		b.Run(kind, func(b *testing.B) {
			s := startServer(b, kind)
			before := s.processorTime(b)
			b.SetParallelism(50)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := s.machine(); err != nil {
						b.Error(err)
					}
				}
			})
			took := s.processorTime(b) - before
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "server-µs/request")
			b.ReportMetric(2*float64(b.N)/took.Seconds(), "requests/s-of-2-cores")
		})
	}
}

// BenchmarkWaiting is the memory of a server for 1,000 machines that have received the beginning of their
// config, and do not read on.
func BenchmarkWaiting(b *testing.B) {
	for _, kind := range []string{"open", "token"} {
		b.Run(kind, func(b *testing.B) {
			s := startServer(b, kind)
			if err := s.machine(); err != nil {
				b.Fatal(err)
			}
			idle, most := s.resident(b), 0
			for b.Loop() {
				most = max(most, s.hold(b, 1000))
			}
			b.ReportMetric(float64(idle)/1e6, "MB")
			b.ReportMetric(float64(most-idle)/1e6, "MB/1000-machines")
		})
	}
}

// hold returns the server's memory while n machines have received the beginning of their config.
func (s *server) hold(b *testing.B, n int) int {
	b.Helper()
	for range n {
		c, err := s.connect()
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
	}
	return s.resident(b)
}
