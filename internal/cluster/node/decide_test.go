package node_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/node"
)

// combinations calls check with each combination of Decide's inputs.
func combinations(check func(f node.Facts)) {
	for _, run := range []node.Run{node.RunIdle, node.RunRunning, node.RunOutdated} {
		for _, system := range []node.System{node.SystemOther, node.SystemDownloaded, node.SystemCommitted, node.SystemTrial, node.SystemReverting, node.SystemTarget} {
			for _, change := range []node.Change{node.ChangeUnknown, node.ChangeLive, node.ChangeDrain, node.ChangeReboot, node.ChangeSingle} {
				for _, drain := range []node.Drained{node.DrainNone, node.DrainRequested, node.DrainComplete, node.DrainAnnounced} {
					for i := range 128 {
						check(node.Facts{
							Run: run, System: system, Change: change, Drain: drain,
							Managed: i&1 > 0, Failed: i&2 > 0, Reported: i&4 > 0, Ours: i&8 > 0, Rehearsed: i&16 > 0, Proven: i&32 > 0, Prefetch: i&64 > 0,
						})
					}
				}
			}
		}
	}
}

// TestDecideTable compares Decide with the table in docs/dev/agent.md, for all inputs.
func TestDecideTable(t *testing.T) {
	head, rows := documentedTable(t)
	used := map[int]bool{}
	combinations(func(f node.Facts) {
		facts, i := cellsOf(f), 0
		for i < len(rows) && !fits(head, rows[i], facts) {
			i++
		}
		if i == len(rows) {
			t.Fatalf("%+v: no row of the table fits", f)
		}
		used[i] = true
		if got, want := node.Decide(f), node.Action(rows[i][len(head)-1]); got != want {
			t.Errorf("%+v: %s, the table says %s", f, got, want)
		}
	})
	for i := range rows {
		if !used[i] {
			t.Errorf("row %d of the table fits nothing", i+1)
		}
	}
}

// cellsOf returns the facts by the names of the table's columns.
func cellsOf(f node.Facts) map[string]string {
	cells := map[string]string{}
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		text := fmt.Sprint(v.Field(i))
		switch text {
		case "true":
			text = "yes"
		case "false":
			text = "no"
		}
		cells[strings.ToLower(v.Type().Field(i).Name)] = text
	}
	return cells
}

func fits(head, row []string, facts map[string]string) bool {
	for i, column := range head[:len(head)-1] {
		if row[i] != "" && row[i] != facts[column] {
			return false
		}
	}
	return true
}

// documentedTable returns the columns and the rows of the table of actions.
func documentedTable(t *testing.T) (head []string, rows [][]string) {
	t.Helper()
	data, err := os.ReadFile("../../../docs/dev/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "run" && cells[len(cells)-1] == "action":
			head = cells
		case head != nil && len(cells) == len(head) && !strings.HasPrefix(cells[0], "-"):
			rows = append(rows, cells)
		case rows != nil:
			return head, rows
		}
	}
	if len(rows) == 0 || len(head) != reflect.TypeFor[node.Facts]().NumField()+1 {
		t.Fatalf("docs/dev/agent.md has no table with a column for each fact: %q", head)
	}
	return head, rows
}

// TestDecide checks the promises, for all inputs.
func TestDecide(t *testing.T) {
	combinations(func(f node.Facts) {
		a := node.Decide(f)
		emptied := f.Drain == node.DrainComplete || f.Drain == node.DrainAnnounced
		for promise, broken := range map[string]bool{
			"no run beside another":                                f.Run != node.RunIdle && a != node.ActionWait && a != node.ActionStop,
			"a node that nobody manages is only given back":        !f.Managed && f.Run == node.RunIdle && a != node.ActionRest && a != node.ActionUncordon,
			"no cordon before everything is downloaded":            a == node.ActionCordon && f.System != node.SystemDownloaded && f.System != node.SystemCommitted,
			"no cordon before a rehearsal":                         a == node.ActionCordon && !f.Rehearsed,
			"no cordon without need":                               a == node.ActionCordon && f.Change != node.ChangeDrain && f.Change != node.ChangeReboot,
			"no change without a drain that is due":                a == node.ActionApply && (f.Change == node.ChangeDrain || f.Change == node.ChangeReboot) && !emptied,
			"no reboot that was not announced":                     a == node.ActionApply && (f.Change == node.ChangeReboot || f.Change == node.ChangeSingle) && f.Drain != node.DrainAnnounced,
			"no second drain":                                      (a == node.ActionCordon || a == node.ActionDrain) && emptied,
			"what has failed is not tried":                         f.Failed && (a == node.ActionDownload || a == node.ActionApply || a == node.ActionCordon || a == node.ActionDrain),
			"nothing is done before it is proven":                  a == node.ActionDone && !(f.Proven && f.System == node.SystemTarget),
			"no rest while the node is cordoned, but for no proof": a == node.ActionRest && f.Ours && !(f.Failed && f.System == node.SystemTarget),
			"no prefetch but on a node at rest":                    a == node.ActionPrefetch && !(f.Managed && f.System == node.SystemTarget && f.Proven && f.Reported && !f.Failed && !f.Ours),
			"no rest with something to say":                        a == node.ActionRest && f.Managed && !f.Reported,
		} {
			if broken {
				t.Errorf("%+v: %s: %s", f, a, promise)
			}
		}
	})
}
