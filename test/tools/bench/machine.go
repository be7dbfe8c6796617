package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the machine of the benchmark.
type machine struct {
	Processor  string `json:"processor"`
	CPUs       int    `json:"cpus"`
	Memory     int64  `json:"memory_bytes"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
}

// machine returns the description of this machine. Unknown fields stay empty.
func (w *world) machine() machine {
	m := machine{CPUs: runtime.NumCPU(), Processor: "processor unknown", FileSystem: "file system unknown"}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				m.Processor = strings.TrimSpace(value)
			}
		}
	}
	if out, err := exec.Command("findmnt", "-no", "FSTYPE,OPTIONS", "-T", w.dir).Output(); err == nil {
		m.FileSystem = strings.Join(strings.Fields(string(out)), " ")
	}
	return m
}
