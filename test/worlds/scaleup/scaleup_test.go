package scaleup

import (
	"bytes"
	"encoding/xml"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
)

// TestScaleUp: machines that boot at the same time all get the image, from a registry that refuses most of them at
// first and fails once. It takes little more time than to send it to them. None gives up, little is sent twice, and no
// second has many times the requests of the others.
func TestScaleUp(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of many machines, in three seconds")
	}
	check(t, Options{Machines: 30, Scale: 10, PowerOn: 2 * time.Second, Transfer: 30 * time.Second, Transfers: 8, RetryAfter: 2 * time.Second, FailsAfter: 10 * time.Second, FailsFor: 4 * time.Second})
}

// TestThousandMachines is TestScaleUp as docs/dev/benchmark.md has it.
func TestThousandMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("eight minutes")
	}
	f := check(t, Options{Machines: 1000, Scale: 2, PowerOn: 10 * time.Second, Transfer: 800 * time.Second, Transfers: 100, RetryAfter: 10 * time.Second, FailsAfter: 200 * time.Second, FailsFor: time.Minute})
	if f.Wave > 0.4 {
		t.Errorf("requests come in waves: correlation %.2f", f.Wave)
	}
}

// TestWave: machines that come back together are noticed.
func TestWave(t *testing.T) {
	o := Options{RetryAfter: 10 * time.Second}
	together, apart := make([]int, 600), make([]int, 600)
	chance := rand.New(rand.NewPCG(1, 2))
	for second := range together {
		together[second], apart[second] = chance.IntN(20), chance.IntN(200)
		if second%11 == 0 {
			together[second] += 900
		}
	}
	if one, other := wave(together, o), wave(apart, o); one < 0.8 || other > 0.2 {
		t.Errorf("together %.2f, apart %.2f", one, other)
	}
}

func check(t *testing.T, o Options) Figures {
	t.Helper()
	need.Ostree(t)
	o.Dir = t.TempDir()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Figures(o)
	var table bytes.Buffer
	if err := f.Print(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	if err := r.Err(); err != nil || f.Failed > 0 || f.Restarts > 0 || f.Again > 1.1 {
		t.Errorf("%d first boots were started again, %.3f of the bytes were sent, %v", f.Restarts, f.Again, err)
	}
	if f.Refused == 0 || f.Requests == f.Refused {
		t.Errorf("%d of %d requests were refused: this is no rush", f.Refused, f.Requests)
	}
	checkPicture(t, r.SVG(o))
	return f
}

func checkPicture(t *testing.T, svg []byte) {
	t.Helper()
	picture := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := picture.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
