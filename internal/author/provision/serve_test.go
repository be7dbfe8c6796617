package provision_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/kargs"
)

// input is the input of a server under test.
type input struct {
	mu     sync.Mutex
	stamp  string
	spec   string // of the worker's MachineConfig
	err    error
	cert   *tls.Certificate
	loads  int
	logged []string
}

func (in *input) set(change func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	change()
}

func (in *input) load(context.Context) (provision.Content, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.loads++
	if in.err != nil {
		return provision.Content{}, in.err
	}
	all, report := authored.Decode("a.json", []byte(`{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
"metadata":{"name":"a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":`+in.spec+`}`), authored.Rules{KernelArguments: kargs.DefaultPolicy()})
	if report.Failed() {
		return provision.Content{}, report.Err("it")
	}
	merged, err := authored.Merge(all, authored.Images{})
	if err == nil {
		err = merged.Render("worker")
	}
	return provision.Content{Roles: map[string]*authored.MachineConfig{"worker": merged}, Certificate: in.cert}, err
}

// testServer is a server under test with its input.
type testServer struct {
	*provision.Server
	in  *input
	url string
}

func server(t testing.TB, change func(*input)) testServer {
	t.Helper()
	in := &input{spec: `{"kernelArguments":["nosmt"]}`}
	if change != nil {
		change(in)
	}
	s := &provision.Server{
		MaxConnections: 4096, MaxPerAddress: 4096,
		Load:  in.load,
		Stamp: func() (string, error) { in.mu.Lock(); defer in.mu.Unlock(); return in.stamp, nil },
		Log:   func(line string) { in.set(func() { in.logged = append(in.logged, line) }) },
	}
	if err := s.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	return testServer{s, in, web.URL}
}

func (s testServer) get(t testing.TB, path string, header http.Header) (int, http.Header, string) {
	t.Helper()
	return s.do(t, http.MethodGet, path, header)
}

func (s testServer) do(t testing.TB, method, path string, header http.Header) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequest(method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

func TestRequests(t *testing.T) {
	s := server(t, nil)
	code, header, body := s.get(t, "/config/worker", http.Header{})
	if code != 200 || header.Get("Content-Length") != fmt.Sprint(len(body)) || header.Get("Vary") != "Accept" || header.Get("ETag") == "" {
		t.Fatalf("%d %v", code, header)
	}
	tag := header.Get("ETag")
	for _, c := range []struct {
		method, path, match string
		status, bytes       int
	}{
		{"HEAD", "/config/worker", "", 200, 0},
		{"GET", "/config/worker", tag, 304, 0},
		{"GET", "/config/worker", `"other"`, 200, len(body)},
		{"GET", "/config/nobody", "", 404, -1},
		{"GET", "/config/", "", 404, -1},
		{"GET", "/config/worker/x", "", 404, -1},
		{"GET", "/config/..%2fworker", "", 404, -1},
		{"GET", "/", "", 404, -1},
		{"POST", "/config/worker", "", 405, -1},
		{"DELETE", "/config/worker", "", 405, -1},
		{"GET", "/healthz", "", 200, 3},
	} {
		header := http.Header{}
		if c.match != "" {
			header.Set("If-None-Match", c.match)
		}
		status, _, body := s.do(t, c.method, c.path, header)
		if status != c.status || c.bytes >= 0 && len(body) != c.bytes {
			t.Errorf("%+v: %d with %d bytes", c, status, len(body))
		}
	}
	other, _, again := s.get(t, "/config/worker", http.Header{"Accept": {"application/vnd.coreos.ignition+json;version=3.4.0"}})
	if other != 200 || again == body {
		t.Errorf("%d %s", other, again)
	}
}

// What a version does not support is refused, with its path.
func TestNotInThatVersion(t *testing.T) {
	s := server(t, func(in *input) {
		in.spec = `{"config":{"ignition":{"version":"3.4.0"},"storage":{"luks":[{"name":"x","device":"/dev/x","keyFile":{"source":"data:,x"}}]}}}`
	})
	code, _, body := s.get(t, "/config/worker", http.Header{})
	if code != http.StatusNotAcceptable || !strings.Contains(body, "LUKS is not supported on 2.2") {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := s.get(t, "/config/worker", http.Header{"Accept": {"application/vnd.coreos.ignition+json;version=3.5.0"}}); code != 200 {
		t.Error(code)
	}
}

// A change is loaded once it has settled. An invalid one leaves the served content.
func TestWatch(t *testing.T) {
	s := server(t, nil)
	_, first, _ := s.get(t, "/config/worker", http.Header{})
	ticks := make(chan time.Time)
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.Watch(ctx, ticks) })
	tick := func() { ticks <- time.Time{}; ticks <- time.Time{}; ticks <- time.Time{} } // the third is received after the second is handled
	tick()
	s.in.set(func() { s.in.stamp, s.in.spec = "1", `{"kernelArguments":["quiet"]}` })
	ticks <- time.Time{}
	s.in.set(func() {
		if s.in.loads != 1 {
			t.Error("loaded before it settled")
		}
	})
	tick()
	_, second, _ := s.get(t, "/config/worker", http.Header{})
	if second.Get("ETag") == first.Get("ETag") {
		t.Error("the change is not served")
	}
	s.in.set(func() { s.in.stamp, s.in.err = "2", errors.New("line 7 is wrong") })
	tick()
	tick()
	_, third, _ := s.get(t, "/config/worker", http.Header{})
	_, _, health := s.get(t, "/healthz", nil)
	if third.Get("ETag") != second.Get("ETag") || health != "ok, but the newest input is not served: see the log\n" {
		t.Errorf("%q", health)
	}
	s.in.set(func() { s.in.err = nil; s.in.spec = `{}` })
	tick()
	stop()
	watching.Wait()
	_, fourth, _ := s.get(t, "/config/worker", http.Header{})
	if _, _, health := s.get(t, "/healthz", nil); fourth.Get("ETag") == third.Get("ETag") || health != "ok\n" {
		t.Errorf("%q", health)
	}
	if told := strings.Count(strings.Join(s.in.logged, "\n"), "not reloaded"); told != 1 {
		t.Errorf("the failure was told %d times: %q", told, s.in.logged)
	}
}

func TestFirstLoadMustSucceed(t *testing.T) {
	s := &provision.Server{
		Load:  func(context.Context) (provision.Content, error) { return provision.Content{}, errors.New("bad") },
		Stamp: func() (string, error) { return "", nil }, Log: func(string) {},
	}
	if err := s.Reload(context.Background()); err == nil {
		t.Error("no error")
	}
}

// The server uses TLS, with the newest certificate, until the context ends.
func TestServeTLS(t *testing.T) {
	source := httptest.NewTLSServer(nil)
	defer source.Close()
	s := server(t, func(in *input) { in.cert = &source.TLS.Certificates[0] })
	address := s.listening(t)
	response, err := source.Client().Get("https://" + address + "/config/worker")
	if err != nil || response.StatusCode != 200 {
		t.Fatal(err, response)
	}
	response.Body.Close()
	source.Client().CloseIdleConnections()
}

// Connections beyond the limit wait until others are closed.
func TestConnectionLimit(t *testing.T) {
	s := server(t, nil)
	s.MaxConnections = 2
	address := s.listening(t)
	var idle []net.Conn
	for range 2 { // they connect, and stay open
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	answered := make(chan error, 1)
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	go func() {
		response, err := client.Get("http://" + address + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	select {
	case <-answered:
		t.Error("a third connection was served")
	case <-time.After(100 * time.Millisecond):
	}
	idle[0].Close()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	idle[1].Close()
}

// crowd opens n connections from one address, each of which sends say and then waits. Connections
// that the server resets are ignored.
func crowd(t *testing.T, from, to string, n int, say string) []net.Conn {
	t.Helper()
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute,
		// A small receive buffer, so that unread responses block the server early.
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		},
	}
	var all []net.Conn
	for range n {
		c, err := dialer.Dial("tcp", to)
		if errors.Is(err, syscall.ECONNRESET) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, say)
		all = append(all, c)
	}
	return all
}

// request is an HTTP request for the config of workers.
const request = "GET /config/worker HTTP/1.1\r\nHost: x\r\n\r\n"

// largeConfig makes responses larger than the socket buffers.
func largeConfig(in *input) {
	in.spec = `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large","contents":{"source":"data:,` + strings.Repeat("x", 1_000_000) + `"}}]}}}`
}

// listening starts the server for the duration of the test and returns its address. The server must
// end without an error.
func (s testServer) listening(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// TestOneAddressDelaysNobodyElse: 2,000 idle connections and 2,000 with unread responses, all
// from one address, would fill the server. A client with another address must still be served,
// before any of these is disconnected.
func TestOneAddressDelaysNobodyElse(t *testing.T) {
	const each = 2000
	s := server(t, largeConfig)
	s.MaxConnections, s.MaxPerAddress = 2*each, each/2
	address := s.listening(t)
	// answer returns the duration of a request from another address.
	answer := func() time.Duration {
		t.Helper()
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}).DialContext,
		}}
		start := time.Now()
		response, err := client.Get("http://" + address + "/config/worker")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if n, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 200 || n < 1_000_000 {
			t.Fatal(response.Status, n, err)
		}
		return time.Since(start)
	}
	answer() // renders the config
	alone := answer()
	crowd(t, "127.0.0.1", address, each, "")
	crowd(t, "127.0.0.1", address, each, request)
	took := []time.Duration{answer(), answer(), answer()}
	t.Logf("alone %s, beside the others %s", alone, took)
	const bound = 5 * time.Second // the others are disconnected after ten: a server that waited for them would take as long
	if slices.Max(took) > max(bound, 4*alone) {
		t.Errorf("answers took %s, want %s", took, bound)
	}
}

// TestWaitingConnectionsEnd: clients that send no request, or do not read the response, are
// disconnected within seconds.
func TestWaitingConnectionsEnd(t *testing.T) {
	s := server(t, largeConfig)
	s.MaxPerAddress = 10
	address := s.listening(t)
	start := time.Now()
	idle := crowd(t, "127.0.0.1", address, 1, "")[0]
	unread := crowd(t, "127.0.0.1", address, 1, request)[0]
	kept := crowd(t, "127.0.0.1", address, 1, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")[0]
	for what, c := range map[string]net.Conn{"idle": idle, "kept": kept} {
		_ = c.SetReadDeadline(start.Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the %s connection is open after %s", what, time.Since(start))
		}
	}
	answered := func() (logged bool) {
		s.in.set(func() {
			logged = slices.ContainsFunc(s.in.logged, func(line string) bool { return strings.Contains(line, `"worker"`) })
		})
		return logged
	}
	for !answered() {
		if time.Since(start) > time.Minute {
			t.Fatal("the unread answer is still being written")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n, err := io.Copy(io.Discard, unread); n > 1_000_000 {
		t.Errorf("the unread answer was written whole: %d bytes, %v", n, err)
	}
	t.Log("after", time.Since(start))
}

// For IPv6 the limit applies to a /64 network, within which one machine can choose its addresses.
func TestAddressesOfOneMachine(t *testing.T) {
	s := server(t, nil)
	s.MaxPerAddress = 2
	listener := &addresses{remote: []string{"[2001:db8::1]:1", "[2001:db8::2]:2", "[2001:db8::3]:3", "[2001:db8:0:1::1]:4", "[::ffff:192.0.2.1]:5", "192.0.2.1:6", "192.0.2.1:7"}}
	if err := s.Serve(t.Context(), listener); err == nil {
		t.Error("no error")
	}
	var turnedAway []string
	for _, c := range listener.all {
		if c.closed.Load() {
			turnedAway = append(turnedAway, c.RemoteAddr().String())
		}
	}
	if want := []string{"[2001:db8::3]:3", "192.0.2.1:7"}; !slices.Equal(turnedAway, want) {
		t.Errorf("turned away are %q, want %q", turnedAway, want)
	}
}

// addresses is a listener that accepts one idle connection from each address.
type addresses struct {
	remote []string
	all    []*waiting
}

func (a *addresses) Accept() (net.Conn, error) {
	if len(a.remote) == len(a.all) {
		return nil, errors.New("that was all")
	}
	here, _ := net.Pipe()
	c := &waiting{Conn: here, remote: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.remote[len(a.all)]))}
	a.all = append(a.all, c)
	return c, nil
}

func (a *addresses) Close() error   { return nil }
func (a *addresses) Addr() net.Addr { return &net.TCPAddr{} }

type waiting struct {
	net.Conn
	remote net.Addr
	closed atomic.Bool
}

func (c *waiting) RemoteAddr() net.Addr { return c.remote }
func (c *waiting) Close() error         { c.closed.Store(true); return c.Conn.Close() }

// Thousands of machines boot at once, each with its own connection.
func TestLoad(t *testing.T) {
	machines := 3000
	if testing.Short() {
		machines = 300
	}
	s := server(t, func(in *input) {
		in.spec = `{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large","contents":{"source":"data:,` + strings.Repeat("x", 100_000) + `"}}]}}}`
	})
	address := s.listening(t)
	took := make([]time.Duration, machines)
	errs := make([]error, machines)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() {
			begun := time.Now()
			errs[i] = boot("http://" + address + "/config/worker")
			took[i] = time.Since(begun)
		})
	}
	all.Wait()
	total := time.Since(start)
	runtime.ReadMemStats(&after)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%.500s", err)
	}
	slices.Sort(took)
	t.Logf("%d first boots of 100 kB in %s: half within %s, 99%% within %s; %.0f kB allocated for each, client and server",
		machines, total.Round(time.Millisecond), took[machines/2].Round(time.Millisecond), took[machines*99/100].Round(time.Millisecond),
		float64(after.TotalAlloc-before.TotalAlloc)/float64(machines)/1024)
	if s.in.loads != 1 {
		t.Errorf("loaded %d times", s.in.loads)
	}
}

// boot requests a config like a machine does.
func boot(url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != 200 || n < 100_000) {
		err = fmt.Errorf("%s with %d bytes", response.Status, n)
	}
	return err
}
