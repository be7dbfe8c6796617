// Package booted boots a sysroot from test/worlds/hostdir, as far as processes can see. They run with the
// default deployment as their root directory and the testing machine's /usr, read-only, so that the
// real pivot and the real ostree work. They can reboot the machine.
package booted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
)

// World is what the processes of a machine see in one boot: the directories and files that are
// mounted for them.
type World struct {
	Physical string // root directory of the file system that holds the deployments
	Root     string // root directory of the running deployment
	Var      string
	RunDir   string // becomes /run
	Programs string // directory of programs, mounted at ProgramsDir
	BootID   string // file with the boot ID
	Cmdline  string // file with the kernel command line
	CPUs     string // directory mounted at /sys/devices/system/cpu; "": the testing machine's
}

// ProgramsDir is where World.Programs is mounted.
const ProgramsDir = "/run/programs"

// Env is the environment variable that passes the world to a child of Command.
const Env = "PIVOT_TEST_WORLD"

// Command returns a command that runs the current executable with arguments, as the first process
// of a PID namespace and in a new mount namespace. The executable must call Enter.
func (w World) Command(args ...string) (*exec.Cmd, error) {
	world, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), Env+"="+string(world))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// Enter mounts the world passed in Env, makes its deployment the root directory of this process,
// and returns the environment for programs.
func Enter() (env []string, err error) {
	var w World
	if err := json.Unmarshal([]byte(os.Getenv(Env)), &w); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", Env, err)
	}
	return []string{"PATH=" + ProgramsDir + ":/usr/bin:/usr/sbin", "HOME=/"}, w.enter()
}

// mount is one mount; to is relative to the deployment.
type mount struct {
	from, to string
	flags    uintptr // in addition to MS_BIND; MS_RDONLY takes a second call
}

func (w World) enter() error {
	mounts := []mount{
		{w.Root, "", 0}, {w.Physical, "sysroot", 0}, {filepath.Join(w.Physical, "boot"), "boot", 0},
		{w.Var, "var", 0}, {"/usr", "usr", unix.MS_RDONLY}, {w.RunDir, "run", 0}, {w.Programs, ProgramsDir, 0},
		{"/dev", "dev", unix.MS_REC}, {"/sys", "sys", unix.MS_REC},
		{"proc", "proc", 0},
		{w.BootID, "proc/sys/kernel/random/boot_id", 0}, {w.Cmdline, "proc/cmdline", 0},
	}
	if w.CPUs != "" {
		mounts = append(mounts, mount{w.CPUs, "sys/devices/system/cpu", 0})
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, m := range mounts {
		to := filepath.Join(w.Root, m.to)
		if err == nil && m.from == "proc" {
			err = unix.Mount("proc", to, "proc", 0, "")
		} else if err == nil {
			err = unix.Mount(m.from, to, "", unix.MS_BIND|m.flags, "")
		}
		if err == nil && m.flags&unix.MS_RDONLY != 0 {
			err = unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|m.flags, "")
		}
		if err != nil {
			return fmt.Errorf("cannot mount %s: %w", to, err)
		}
	}
	return errors.Join(unix.Chroot(w.Root), unix.Chdir("/"))
}

// Machine is a machine that can be rebooted.
type Machine struct {
	World
	// Stopping is called after a reboot was requested and before the processes end, which systemd gives
	// time to stop; nil: they get none.
	Stopping func()

	dir     string
	boots   int
	systemd *systemd
}

// New returns a machine with the sysroot in physical and the given directory of programs. It keeps
// its other state in dir, which must be empty. The machine is not booted yet.
func New(dir, physical, programs string) *Machine {
	return &Machine{dir: dir, World: World{
		Physical: physical, Programs: programs, Var: filepath.Join(physical, "ostree/deploy/os/var"),
		BootID: filepath.Join(dir, "boot_id"), Cmdline: filepath.Join(dir, "cmdline"),
	}}
}

// Next returns the default deployment.
func (m *Machine) Next() (ostree.Deployment, error) {
	all, err := ostree.OpenSysroot(m.Physical).Deployments()
	if err == nil && len(all) == 0 {
		err = errors.New("the machine cannot boot: it has no boot entry")
	}
	if err != nil {
		return ostree.Deployment{}, err
	}
	return all[0], nil
}

// Shell enters the machine and executes the shell for a command of Run. It returns only on failure.
// A TestMain must call it if Env is set.
func Shell() error {
	env, err := Enter()
	if err != nil {
		return err
	}
	if err := os.Chdir(HomeDir); err != nil {
		return err
	}
	return syscall.Exec("/bin/sh", append([]string{"sh", "-c"}, os.Args[1:]...), env)
}

// HomeDir is the working directory of commands of Run. It persists over reboots. Home returns its
// path on the testing machine.
const HomeDir = "/var/home"

// Home returns the directory HomeDir of the machine.
func (m *Machine) Home() string { return filepath.Join(m.Var, "home") }

// commandTimeout is the time limit for a command.
const commandTimeout = 3 * time.Minute

// Run runs a shell command and returns its output and exit status. A command that asks systemd for
// a reboot is killed, and the machine is rebooted. Run boots the machine if necessary.
func (m *Machine) Run(command string) (output string, status int, err error) {
	if m.systemd == nil {
		if err := m.restart(); err != nil {
			return "", 0, err
		}
	}
	cmd, err := m.Command(command)
	if err != nil {
		return "", 0, err
	}
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status, err = exit.ExitCode(), nil
		}
		if len(m.systemd.reboots) > 0 { // requested just before the command ended
			err = errors.Join(err, m.restart())
		}
	case <-m.systemd.reboots:
		if m.Stopping != nil {
			m.Stopping()
		}
		_ = cmd.Process.Kill() // fails if it has ended
		<-ended
		err = m.restart()
	case <-time.After(commandTimeout):
		_ = cmd.Process.Kill()
		<-ended
		err = errors.New("it does not end")
	}
	return printed.String(), status, err
}

// restart ends the current boot, if any, and begins the next one.
func (m *Machine) restart() error {
	if err := m.Close(); err != nil {
		return err
	}
	err := errors.Join(m.Start(), os.MkdirAll(m.Home(), 0o755))
	if err == nil {
		m.systemd, err = m.startSystemd()
	}
	return err
}

// Close powers off a machine that Run has booted.
func (m *Machine) Close() error {
	if m.systemd == nil {
		return nil
	}
	err := m.systemd.Close()
	m.systemd = nil
	return err
}

// Start boots the default deployment, with an empty /run.
func (m *Machine) Start() error {
	next, err := m.Next()
	if err != nil {
		return err
	}
	m.boots++
	m.Root, m.RunDir = next.Path, filepath.Join(m.dir, fmt.Sprint("run-", m.boots))
	if err := withoutLinks(m.Root, "boot", "sysroot", "var", "run"); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(m.RunDir, filepath.Base(ProgramsDir)), m.path("boot"), m.path("sysroot"), m.path("var"), m.path("run")} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	for file, content := range map[string]string{
		filepath.Join(m.RunDir, "ostree-booted"): "",
		m.BootID:                                 fmt.Sprintf("%08x-9d3f-4b52-a1c6-5e0f7d2b8a94\n", m.boots), m.Cmdline: next.Entry.Options + "\n",
	} {
		err = errors.Join(err, os.WriteFile(file, []byte(content), 0o644))
	}
	return err
}

func (m *Machine) path(name string) string { return filepath.Join(m.Root, name) }

// withoutLinks removes the absolute links that hostdir uses instead of mounts.
func withoutLinks(root string, names ...string) error {
	for _, name := range names {
		link := filepath.Join(root, name)
		if target, err := os.Readlink(link); err != nil || !filepath.IsAbs(target) {
			continue
		}
		// ostree marks deployments immutable.
		if out, err := exec.Command("chattr", "-i", root).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot change %s: %w\n%s", root, err, out)
		}
		if err := os.Remove(link); err != nil {
			return err
		}
	}
	return nil
}
