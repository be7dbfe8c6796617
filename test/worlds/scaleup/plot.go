package scaleup

import (
	"bytes"
	"fmt"
	"math"
	"time"
)

// Dimensions of the picture, in pixels.
const (
	width  = 1120
	height = 360
	margin = 50
)

// SVG returns a picture of the requests per second: one bar for each second, with refused ones in another colour, and a
// line for how many machines have the image.
func (r *Result) SVG(o Options) []byte {
	all, refused := r.PerSecond()
	f := r.Figures(o)
	most := 1
	for _, n := range all {
		most = max(most, n)
	}
	x := func(second float64) float64 { return margin + second/float64(len(all))*(width-2*margin) }
	y := func(part float64) float64 { return height - margin - part*(height-2*margin) }
	var out bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`, width, height)
	put(`<style>svg { background: #fff; font: 11px "DejaVu Sans", sans-serif; } .all { fill: #9cc3e6; } .refused { fill: #e0a09a; } .down { fill: #eee; } polyline { fill: none; stroke: #3d7a31; stroke-width: 2; }</style>`)
	put(`<text x="%d" y="20" font-size="15">%d first boots: requests per second, refused ones red; green: machines with the image</text>`, margin, len(r.Machines))
	if o.FailsFor > 0 {
		from, to := x(o.FailsAfter.Seconds()), x((o.FailsAfter + o.FailsFor).Seconds())
		put(`<rect class="down" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, from, y(1), to-from, y(0)-y(1))
	}
	bar := func(class string, second, n int) {
		part := float64(n) / float64(most)
		put(`<rect class="%s" x="%.2f" y="%.1f" width="%.2f" height="%.1f"/>`, class, x(float64(second)), y(part), x(1)-x(0), y(0)-y(part))
	}
	for second, n := range all {
		bar("all", second, n)
		bar("refused", second, refused[second])
	}
	out.WriteString(`<polyline points="`)
	for n, ended := range f.Sorted {
		fmt.Fprintf(&out, "%.1f,%.1f ", x(ended.Seconds()), y(float64(n+1)/float64(len(r.Machines))))
	}
	put(`"/>`)
	step := math.Ceil(float64(len(all))/1000) * 100
	for second := 0.0; second < float64(len(all)); second += step {
		put(`<text x="%.1f" y="%d">%s</text>`, x(second), height-margin+15, time.Duration(second)*time.Second)
	}
	put(`<text x="5" y="%.1f">%d/s</text>`, y(1)+4, most)
	put(`</svg>`)
	return out.Bytes()
}
