// Command unchanged prints which part of Fedora CoreOS's bytes is in layers without a changed package, by the
// age of the boot image. Only these layers could be skipped by an import that fetches what the machine lacks. Its
// argument is a clone of https://github.com/coreos/fedora-coreos-config. Its branch testing-devel locked the packages
// of each day until 2025. docs/dev/benchmark.md has the result.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Sizes in MB that rpm-ostree's pull request 3478 names, of 1342.7 MB in all; what no package owns changes in each build.
var (
	large = map[string]float64{"linux-firmware": 188.1, "containerd": 164, "moby-engine": 162.2, "containernetworking-plugins": 62.7,
		"podman": 50, "kernel-core": 41.4, "libicu": 34.5, "kernel-modules": 33.5, "skopeo": 26, "ignition": 23, "samba-client-libs": 22.5, "git-core": 18.4}
	total, unpackaged = 1342.7, 133.9
	ages              = []int{1, 3, 14, 30, 60, 90, 180, 365}
)

// locked is the version of each package of a day, without its architecture.
type locked map[string]string

func read(clone, commit string) (locked, error) {
	out, err := exec.Command("git", "-C", clone, "show", commit+":manifest-lock.x86_64.json").Output()
	var file struct {
		Packages map[string]struct{ EVRA string }
	}
	versions := locked{}
	if err == nil {
		err = json.Unmarshal(out, &file)
	}
	for name, p := range file.Packages {
		versions[name] = strings.TrimSuffix(strings.TrimSuffix(p.EVRA, ".x86_64"), ".noarch")
	}
	return versions, err
}

// compare returns the part of packages that changed, and the parts of bytes in layers without a changed package. Single
// is with a layer for each package, packed with 51 layers: one for each large package, 38 for the others.
func compare(from, to locked) (changed, single, packed float64) {
	var rest []string
	for name, version := range to {
		size, is := large[name]
		if !is {
			rest = append(rest, name)
		}
		if from[name] == version {
			single, packed = single+size, packed+size
		} else {
			changed += 1 / float64(len(to))
		}
	}
	slices.Sort(rest)
	each := total - unpackaged
	for _, size := range large {
		each -= size
	}
	each /= float64(len(rest))
	for layer := range slices.Chunk(rest, len(rest)/38+1) {
		same := 0
		for _, name := range layer {
			if from[name] == to[name] {
				same++
			}
		}
		single += each * float64(same)
		if same == len(layer) {
			packed += each * float64(same)
		}
	}
	return changed, single / total, packed / total
}

func main() {
	if len(os.Args) != 2 {
		log.Fatalln("unchanged CLONE")
	}
	out, err := exec.Command("git", "-C", os.Args[1], "log", "--format=%H %cs", "testing-devel", "--", "manifest-lock.x86_64.json").Output()
	if err != nil {
		log.Fatalf("cannot list the commits of %s: %v", os.Args[1], err)
	}
	commits := map[string]string{} // the last one of each day
	for line := range strings.Lines(string(out)) {
		if commit, day, _ := strings.Cut(strings.TrimSpace(line), " "); commits[day] == "" {
			commits[day] = commit
		}
	}
	fmt.Println("days changed single packed")
	for _, age := range ages {
		var n, changed, single, packed float64
		for at := time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2025; at = at.AddDate(0, 0, 10) {
			old, is := commits[at.AddDate(0, 0, -age).Format(time.DateOnly)]
			target, and := commits[at.Format(time.DateOnly)]
			if !is || !and {
				continue
			}
			from, err := read(os.Args[1], old)
			to, also := read(os.Args[1], target)
			if err := errors.Join(err, also); err != nil {
				log.Fatalln(err)
			}
			c, s, p := compare(from, to)
			n, changed, single, packed = n+1, changed+100*c, single+100*s, packed+100*p
		}
		fmt.Printf("%4d %6.0f%% %5.0f%% %5.0f%%\n", age, changed/n, single/n, packed/n)
	}
}
