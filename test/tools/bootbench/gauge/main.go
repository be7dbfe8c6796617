// Command gauge reports how much memory the machine uses at most. test/tools/bootbench runs it in a guest, in the
// initramfs and in the system. Each time the peak has grown by a MiB, it writes the new one to its own serial port,
// because the machine may end at any time.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gauge: error:", err)
		os.Exit(1)
	}
}

// Four times a second is often enough for programs that take seconds, and costs an emulated machine less than a
// hundredth of its processor.
const interval = 250 * time.Millisecond

func command(args []string) error {
	if len(args) != 1 {
		return errors.New("the serial port is wanted as argument")
	}
	port, err := os.OpenFile(args[0], os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot report memory: %w", err)
	}
	defer port.Close()
	for peak := int64(0); ; time.Sleep(interval) {
		text, err := os.ReadFile("/proc/meminfo")
		if err != nil {
			return fmt.Errorf("cannot read memory: %w", err)
		}
		if peak, err = report(port, peak, text); err != nil {
			return err
		}
	}
}

// report writes the used memory if it is more than the peak so far by a MiB, and returns the peak.
func report(port io.Writer, peak int64, meminfo []byte) (int64, error) {
	used, err := usedMemory(meminfo)
	if err != nil || used < peak+1<<20 {
		return peak, err
	}
	if _, err := fmt.Fprintln(port, used); err != nil {
		return peak, fmt.Errorf("cannot report memory: %w", err)
	}
	return used, nil
}

// usedMemory returns how many bytes of the machine's memory are not available to a new program, from
// /proc/meminfo (proc(5)): the page cache is available, an unpacked initramfs is not.
func usedMemory(meminfo []byte) (int64, error) {
	total, err := value(meminfo, "MemTotal:")
	if err != nil {
		return 0, err
	}
	available, err := value(meminfo, "MemAvailable:")
	return total - available, err
}

// value returns a value of /proc/meminfo in bytes.
func value(meminfo []byte, name string) (int64, error) {
	for line := range bytes.Lines(meminfo) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[0]) == name && string(fields[2]) == "kB" {
			n, err := strconv.ParseInt(string(fields[1]), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("cannot read memory: /proc/meminfo has no %s", name)
}
