package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// phase is a part of a contender's step, as a shell script.
type phase struct {
	Name   string `json:"name"`
	Script string `json:"script"`
}

// job is the input of the child process "measure". Everything runs in one mount namespace: mounts
// of a phase persist in the following ones and disappear at the end.
type job struct {
	Before string   `json:"before"` // a script that runs first, not measured
	Phases []phase  `json:"phases"`
	Env    []string `json:"env"` // the whole environment except BENCH, the path of this program
	Dir    string   `json:"dir"`
	CPUs   int      `json:"cpus"` // how many processors the phases may use; 0: all
}

// usage is the resources used by a phase, including all processes that it started and waited for.
type usage struct {
	Phase string  `json:"phase"`
	Wall  float64 `json:"wall_seconds"`
	CPU   float64 `json:"cpu_seconds"` // user and system time
	Peak  int64   `json:"peak_bytes"`  // resident memory of the largest process

	// As in /proc/PID/io: bytes made dirty in the page cache (write_bytes), and bytes passed to
	// write(2), for any file, pipe or socket (wchar).
	Written int64 `json:"written_bytes"`
	Handed  int64 `json:"write_call_bytes"`
}

// asChild runs as a child process, if the arguments ask for it. "measure" reads a job from stdin and writes its usages;
// "floor PACKS OUT", "fetch CERTS SECRET OUT URL…", and "files" in place of "fetch", run the floors.
// "judge REPO COMMIT PIVOT" judges an image.
func asChild(ctx context.Context, args []string) (mine bool, err error) {
	switch {
	case len(args) == 1 && args[0] == "measure":
		var j job
		if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
			return true, err
		}
		usages, err := j.run(ctx)
		if err != nil {
			return true, err
		}
		return true, json.NewEncoder(os.Stdout).Encode(usages)
	case len(args) == 4 && args[0] == "judge":
		return true, judge(ctx, args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "floor":
		return true, floor(args[1], args[2])
	case len(args) > 4 && (args[0] == "fetch" || args[0] == "files"):
		return true, fetchFloor(args[4:], args[1], args[2], args[3], args[0] == "files")
	}
	return false, nil
}

// launch runs a job in a fresh process of this program. The kernel counts the parent's memory at the start of a process
// as that process's peak. Started from here, with the registry in memory, each contender would seem to need at least
// that.
func launch(ctx context.Context, j job) ([]usage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	input, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "measure")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &problems
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(problems.Bytes()))
	}
	var usages []usage
	return usages, json.Unmarshal(out, &usages)
}

func (j job) run(ctx context.Context) ([]usage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j.Env = append(j.Env, "BENCH="+self)
	if _, err := j.phase(ctx, phase{"preparation", j.Before}); err != nil {
		return nil, err
	}
	var usages []usage
	for _, p := range j.Phases {
		u, err := j.phase(ctx, p)
		if err != nil {
			return nil, err
		}
		usages = append(usages, u)
	}
	return usages, nil
}

func (j job) phase(ctx context.Context, p phase) (usage, error) {
	command := []string{"sh", "-euc", p.Script}
	if j.CPUs > 0 {
		command = append([]string{"taskset", "-c", fmt.Sprintf("0-%d", j.CPUs-1)}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = j.Dir, j.Env
	before, err := readIO()
	if err != nil {
		return usage{}, err
	}
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return usage{}, fmt.Errorf("%s: %w\n%s", p.Name, err, bytes.TrimSpace(out))
	}
	wall := time.Since(start)
	after, err := readIO()
	return usage{
		Phase:   p.Name,
		Wall:    wall.Seconds(),
		CPU:     (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(),
		Peak:    cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * 1024,
		Written: after["write_bytes"] - before["write_bytes"],
		Handed:  after["wchar"] - before["wchar"],
	}, err
}

// readIO reads /proc/self/io, which includes the processes that this one has waited for, and
// recursively theirs.
func readIO() (map[string]int64, error) {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return nil, err
	}
	counters := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		if counters[name], err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil {
			return nil, err
		}
	}
	return counters, nil
}
