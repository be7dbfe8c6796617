package guest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/testenv"
	"machine-pivot/test/worlds/vm"
)

// Shell is a shell on a machine that is on. The machine's own service connects to the host, asks for a
// command, and answers with its output.
type Shell struct{ listener *net.TCPListener }

const shellUnit = "/etc/systemd/system/operator.service"

// answered ends the output of a command.
const answered = "@@answered"

// NewShell returns a shell, which exists until the end of t.
func NewShell(t testenv.T) Shell {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return Shell{listener.(*net.TCPListener)}
}

// Files returns the files of the service on the machine.
func (o Shell) Files() []vm.TreeFile {
	script := fmt.Sprintf("while :; do { read -r command <&3 && { bash -c \"$command\" 2>&1; echo; echo %s; } >&3; } 3<>/dev/tcp/%s/%d || sleep 1; done 2>/dev/null\n",
		answered, bootlab.GuestHost, o.listener.Addr().(*net.TCPAddr).Port)
	const unit = "[Unit]\nAfter=systemd-networkd-wait-online.service\n[Service]\nExecStart=/bin/bash /etc/operator\n"
	return []vm.TreeFile{
		{Path: "/etc/operator", Mode: 0o644, Content: []byte(script)},
		{Path: shellUnit, Mode: 0o644, Content: []byte(unit)},
		{Path: "/etc/systemd/system/multi-user.target.wants/operator.service", Symlink: shellUnit},
	}
}

// Types runs a command of one line on the machine and returns its output. ok is false if the machine did not
// answer, because it is off or busy with its boot. Connections of earlier boots are dead.
func (o Shell) Types(t testenv.T, command string) (output string, ok bool) {
	t.Helper()
	const patience = 30 * time.Second
	end := time.Now().Add(patience)
	if err := o.listener.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := o.listener.Accept()
		if err != nil {
			return "", false
		}
		output, ok := ask(conn, command, end)
		if ok {
			return output, true
		}
	}
}

func ask(conn net.Conn, command string, end time.Time) (output string, ok bool) {
	defer conn.Close()
	if conn.SetDeadline(end) != nil {
		return "", false
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", false
	}
	text, _ := io.ReadAll(conn) // what is missing is noticed
	output, _, ok = strings.Cut(string(text), answered)
	return strings.TrimSpace(output), ok
}
