// Package booted makes a sysroot in a directory, as test/hostdir makes it, a machine that
// runs as far as processes can see. Its default deployment is their root directory, with
// the testing machine's /usr, read-only, so that the real pivot and the real ostree run
// there; they can end the boot, and the next one begins.
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

// World is what a machine's processes see in one boot: directories and files that are
// mounted where they belong.
type World struct {
	Physical string // the root of the file system that holds the deployments
	Root     string // the directory of the deployment that runs
	Var      string
	RunDir   string // becomes /run
	Programs string // a directory of programs; becomes ProgramsDir
	BootID   string // a file that holds it
	Cmdline  string // a file that holds it
	CPUs     string // a directory that becomes /sys/devices/system/cpu; "": the testing machine's
}

// ProgramsDir is where a machine's processes find World.Programs.
const ProgramsDir = "/run/programs"

// Env is the variable that tells a child of Command the world that it has to enter.
const Env = "PIVOT_TEST_WORLD"

// Command starts the program that runs now, with arguments, as the first process of a
// process namespace, in a mount namespace of its own. It has to call Enter.
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

// Enter makes the deployment of the world that Env tells the root directory of this
// process, and returns the environment that programs have there.
func Enter() (env []string, err error) {
	var w World
	if err := json.Unmarshal([]byte(os.Getenv(Env)), &w); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", Env, err)
	}
	return []string{"PATH=" + ProgramsDir + ":/usr/bin:/usr/sbin", "HOME=/"}, w.enter()
}

// mount says what is mounted where below the root.
type mount struct {
	from, to string
	flags    uintptr // beside MS_BIND; MS_RDONLY takes a second call
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

// Machine is a machine that can be booted again and again.
type Machine struct {
	World
	dir     string
	boots   int
	systemd *systemd
}

// New is a machine with the sysroot in physical and the programs in a directory. What is
// the machine's own besides is kept in dir, which is empty. It is not booted.
func New(dir, physical, programs string) *Machine {
	return &Machine{dir: dir, World: World{
		Physical: physical, Programs: programs, Var: filepath.Join(physical, "ostree/deploy/os/var"),
		BootID: filepath.Join(dir, "boot_id"), Cmdline: filepath.Join(dir, "cmdline"),
	}}
}

// Next is the deployment that the machine boots next.
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

// Shell becomes the shell that runs a command of Run. It only returns if it cannot. A
// TestMain has to call it where Env is set.
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

// HomeDir is where the commands of Run run; it outlives a boot. Home is its place here.
const HomeDir = "/var/home"

// Home is the directory HomeDir of the machine.
func (m *Machine) Home() string { return filepath.Join(m.Var, "home") }

// hangs is after how long a command is ended that does not end by itself.
const hangs = 3 * time.Minute

// Run runs a command of the shell and returns what it prints and its exit status. A command
// that asks systemd for a reboot is ended with the boot that it runs in, and the next one
// begins. Machines that are not booted yet are.
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
		if len(m.systemd.reboots) > 0 { // asked for just before the end
			err = errors.Join(err, m.restart())
		}
	case <-m.systemd.reboots:
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		err = m.restart()
	case <-time.After(hangs):
		_ = cmd.Process.Kill()
		<-ended
		err = errors.New("it does not end")
	}
	return printed.String(), status, err
}

// restart ends a boot and begins the next one.
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

// Close powers a machine off that Run has booted.
func (m *Machine) Close() error {
	if m.systemd == nil {
		return nil
	}
	err := m.systemd.Close()
	m.systemd = nil
	return err
}

// Start boots the default deployment; nothing is left of the old /run.
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

// withoutLinks removes the absolute links that hostdir has in place of mounts.
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
