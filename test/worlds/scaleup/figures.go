package scaleup

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Figures summarize a simulation. Times are as on the machines.
type Figures struct {
	Ideal  time.Duration // the registry sends all images one after the other, at its full bandwidth
	Took   time.Duration // until the last machine had its image
	Failed int           // machines that did not get it

	Restarts      int           // first boots that gave up and were started again
	First, Median time.Duration // when a machine had its image
	Again         float64       // bytes sent, in relation to those that all machines need
	Late          time.Duration // as in Result
	Requests      int
	Refused       int
	Half, Most    int     // requests per second: in half of the seconds, and in 99 of 100, at most so many
	Peak          int     // in the busiest second
	PeakAt        int     // in seconds since the start
	Wave          float64 // see wave
	Sorted        []time.Duration
}

// Figures computes the figures of a simulation.
func (r *Result) Figures(o Options) Figures {
	f := Figures{Ideal: o.Transfer, Took: r.Took, Late: r.Late, Requests: len(r.Requests)}
	for _, m := range r.Machines {
		f.Restarts += m.Restarts
		if m.Err != nil {
			f.Failed++
			continue
		}
		f.Sorted = append(f.Sorted, m.Ended)
	}
	slices.Sort(f.Sorted)
	if len(f.Sorted) > 0 {
		f.First, f.Median = f.Sorted[0], f.Sorted[len(f.Sorted)/2]
	}
	f.Again = float64(r.Sent) / float64(r.Image*int64(len(r.Machines)))
	all, refused := r.PerSecond()
	for second, n := range all {
		if f.Refused += refused[second]; n > f.Peak {
			f.Peak, f.PeakAt = n, second
		}
	}
	f.Wave = wave(all, o)
	slices.Sort(all)
	f.Half, f.Most = all[len(all)/2], all[len(all)*99/100]
	return f
}

// wave returns how much the requests of a second are like those of the second in which those come back
// that were refused: the largest autocorrelation for that distance. It is 1 if all do the same again and
// again, and about 0 if a second tells nothing about the later one.
func wave(perSecond []int, o Options) (most float64) {
	mean := 0.0
	for _, n := range perSecond {
		mean += float64(n) / float64(len(perSecond))
	}
	from := int(o.RetryAfter / time.Second)
	for distance := from; distance <= from*3/2; distance++ {
		together, alone := 0.0, 0.0
		for second, n := range perSecond {
			own := float64(n) - mean
			if alone += own * own; second >= distance {
				together += own * (float64(perSecond[second-distance]) - mean)
			}
		}
		if alone > 0 {
			most = max(most, together/alone)
		}
	}
	return most
}

// PerSecond returns how many requests the registry got in each second, and how many it refused.
func (r *Result) PerSecond() (all, refused []int) {
	seconds := 1
	for _, q := range r.Requests {
		seconds = max(seconds, int(q.At/time.Second)+1)
	}
	all, refused = make([]int, seconds), make([]int, seconds)
	for _, q := range r.Requests {
		second := max(0, int(q.At/time.Second))
		if all[second]++; q.Refused {
			refused[second]++
		}
	}
	return all, refused
}

// Print writes the figures as a table.
func (f Figures) Print(w io.Writer) error {
	rows := [][2]string{
		{"all have the image after", fmt.Sprintf("%.0f s, %.2f of bytes / bandwidth", f.Took.Seconds(), f.Took.Seconds()/f.Ideal.Seconds())},
		{"the first, half of them", fmt.Sprintf("%.0f s, %.0f s", f.First.Seconds(), f.Median.Seconds())},
		{"without the image", fmt.Sprint(f.Failed)},
		{"first boots started again", fmt.Sprint(f.Restarts)},
		{"sent, of what is needed", fmt.Sprintf("%.3f", f.Again)},
		{"a wait was too long by", fmt.Sprintf("%.2f s on average: this host was busy", f.Late.Seconds())},
		{"requests, refused", fmt.Sprintf("%d, %d", f.Requests, f.Refused)},
		{"requests per second", fmt.Sprintf("median %d, 99 of 100 at most %d, busiest %d (second %d)", f.Half, f.Most, f.Peak, f.PeakAt)},
		{"those who come back together", fmt.Sprintf("correlation %.2f", f.Wave)},
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-28s %s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}

// Err returns the error of the first machine that did not get the image, or nil.
func (r *Result) Err() error {
	for n, m := range r.Machines {
		if m.Err != nil {
			return fmt.Errorf("machine %d did not get the image: %w", n, m.Err)
		}
	}
	return nil
}
