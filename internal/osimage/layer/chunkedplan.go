package layer

import "machine-pivot/internal/ostree"

// A layer's blob is a row of elements: a gap, a file, a gap, and so on, with a gap at the end. A gap
// has the headers of the archive between two contents.

// elements returns the number of elements.
func (c *Chunked) elements() int { return 2*len(c.files) + 1 }

// isFile reports whether the nth element is the content of a file.
func isFile(n int) bool { return n%2 == 1 }

// element returns where the nth element is in the blob.
func (c *Chunked) element(n int) Span {
	if isFile(n) {
		f := c.files[n/2]
		return Span{f.from, f.to}
	}
	s := Span{0, c.end}
	if n > 0 {
		s.From = c.files[n/2-1].to
	}
	if n/2 < len(c.files) {
		s.To = c.files[n/2].from
	}
	return s
}

// ChunkedPlan says which elements of a layer are fetched.
type ChunkedPlan struct {
	Spans []Span // what is fetched, in order
	Bytes int64  // in all spans

	contents *Chunked
	fetch    []bool // by element
}

// Plan chooses the elements to fetch. Contents that are on the host are not fetched, and no gaps with known headers,
// except where a further span would cost more than it saves. Cost is what each span costs beside its bytes, in bytes.
func (c *Chunked) Plan(cost int64) *ChunkedPlan {
	p := &ChunkedPlan{contents: c, fetch: make([]bool, c.elements())}
	for n := range p.fetch {
		if isFile(n) {
			p.fetch[n] = c.files[n/2].local == ostree.ObjectName{}
		} else {
			p.fetch[n] = c.skeleton == nil && c.table == nil
		}
	}
	p.closeHoles(cost)
	for n := 0; n < len(p.fetch); {
		from, to := n, p.runEnd(n)
		n = to
		if !p.fetch[from] {
			continue
		}
		if s := p.span(from, to); s.From < s.To {
			p.Spans = append(p.Spans, s)
			p.Bytes += s.To - s.From
		}
	}
	return p
}

// closeHoles has small elements fetched that lie between fetched ones.
func (p *ChunkedPlan) closeHoles(cost int64) {
	before := false // something is fetched before
	for n := 0; n < len(p.fetch); {
		from, to := n, p.runEnd(n)
		n = to
		if p.fetch[from] {
			before = true
			continue
		}
		if s := p.span(from, to); before && to < len(p.fetch) && s.To-s.From <= cost {
			for i := from; i < to; i++ {
				p.fetch[i] = true
			}
		}
	}
}

// runEnd returns the end of the run of elements that are, or are not, fetched like the nth.
func (p *ChunkedPlan) runEnd(n int) int {
	end := n + 1
	for end < len(p.fetch) && p.fetch[end] == p.fetch[n] {
		end++
	}
	return end
}

// span returns where a run of elements is in the blob.
func (p *ChunkedPlan) span(from, to int) Span {
	return Span{p.contents.element(from).From, p.contents.element(to - 1).To}
}
