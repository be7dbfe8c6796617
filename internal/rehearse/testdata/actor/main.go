// Command actor is a program of a system in the tests: it does what a file of that system says.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// act is what to do, in this order.
type act struct {
	Do     string
	Say    string
	Status int
	Signal syscall.Signal
	Known  []string // to modprobe
	// Answers are what it says about some of these.
	Answers map[string]string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		time.Sleep(time.Hour)
	}
	var a act
	text, err := os.ReadFile("/etc/act/" + filepath.Base(os.Args[0]))
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err == nil && a.Do == "modprobe" {
		err = resolve(os.Args[1:], a)
	} else if err == nil && a.Do == "sshd" {
		err = loadKeys(a.Known)
	} else if err == nil {
		err = do(a.Do)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println(a.Say)
	if a.Signal != 0 {
		var byDefault [64]byte // a struct sigaction of any architecture: Go has a handler
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(a.Signal), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
		_ = syscall.Kill(os.Getpid(), a.Signal)
		time.Sleep(time.Minute)
	}
	os.Exit(a.Status)
}

// resolve does what "modprobe -S RELEASE -R NAME" does.
func resolve(args []string, a act) error {
	if len(args) != 4 || args[0] != "-S" || args[2] != "-R" {
		return fmt.Errorf("the arguments of modprobe are %q", args)
	}
	if _, err := os.Stat("/lib/modules/" + args[1] + "/modules.dep.bin"); err != nil {
		return err
	}
	if !slices.Contains(a.Known, args[3]) {
		fmt.Printf("modprobe: FATAL: Module %s not found in directory /lib/modules/%s\n", args[3], args[1])
		os.Exit(1)
	}
	if answer := a.Answers[args[3]]; answer != "" {
		fmt.Println(answer)
	}
	return nil
}

// loadKeys does what OpenSSH's sshd -t does with host keys (authfile.c, sshd.c): it refuses those of its own user that others
// may read. Some releases know a mode that is allowed, too.
func loadKeys(allowed []string) error {
	keys, err := filepath.Glob("/etc/ssh/ssh_host_*_key")
	loaded := 0
	for _, key := range keys {
		var st syscall.Stat_t
		if err := syscall.Stat(key, &st); err != nil {
			return err
		}
		if _, err := os.ReadFile(key); err != nil {
			return err
		}
		mode := fmt.Sprintf("%04o", st.Mode&0o7777)
		if int(st.Uid) == os.Getuid() && st.Mode&0o077 != 0 && !slices.Contains(allowed, mode) {
			fmt.Printf("@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\nPermissions %s for '%s' are too open.\nUnable to load host key: %s\n", mode, key, key)
			continue
		}
		loaded++
	}
	if loaded == 0 {
		fmt.Println("sshd: no hostkeys available -- exiting.")
		os.Exit(1)
	}
	return err
}

func do(what string) error {
	switch what {
	case "hang":
		time.Sleep(time.Hour)
	case "flood":
		for page := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := os.Stdout.Write(page); err != nil {
				return err
			}
		}
	case "fork": // and leave a child that holds the output open
		return exec.Command("/proc/self/exe", "child").Start()
	case "swarm":
		for n := range 100 {
			if err := exec.Command("/proc/self/exe", "child").Start(); err != nil {
				return fmt.Errorf("%d processes at most: %w", n, err)
			}
		}
	case "look":
		return look()
	case "hoard":
		for hoard := [][]byte{}; ; {
			hoard = append(hoard, bytes.Repeat([]byte("x"), 1<<20))
			if len(hoard) > 512 {
				return fmt.Errorf("%d MiB of memory are there", len(hoard))
			}
		}
	}
	return nil
}

// look returns an error if there is more to see or to do than a rehearsal may have.
func look() error {
	if os.Getuid() == 0 || os.Geteuid() == 0 || os.Getpid() == 1 {
		return fmt.Errorf("this is process %d of user %d, effective %d", os.Getpid(), os.Getuid(), os.Geteuid())
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if name, caps, _ := strings.Cut(line, ":"); name == "CapEff" || name == "CapPrm" || name == "CapInh" || name == "CapAmb" {
			if set, err := strconv.ParseUint(strings.TrimSpace(caps), 16, 64); err != nil || set != 0 {
				return fmt.Errorf("there are capabilities: %s", line)
			}
		}
	}
	others, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(others) != 2 {
		return fmt.Errorf("there are the processes %q (%v)", others, err)
	}
	if all, err := net.Interfaces(); err != nil || len(all) != 1 {
		return fmt.Errorf("there are the networks %v (%v)", all, err)
	}
	for _, name := range []string{"/new", "/usr/new", "/usr/bin/new", "/etc/new", "/dev/new", "/var/new", "/etc/writable", "/proc/sys/kernel/core_pattern"} {
		if f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			f.Close()
			return fmt.Errorf("%s can be written", name)
		}
	}
	for _, name := range []string{"/tmp/new", "/run/new"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}
