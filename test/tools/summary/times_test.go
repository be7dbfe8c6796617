package main

import (
	"strings"
	"testing"
)

func TestTimes(t *testing.T) {
	const stream = `{"Action":"pass","Package":"m/test/b","Test":"TestB","Elapsed":6.4}
{"Action":"pass","Package":"m/a","Test":"TestA/fast","Elapsed":0.1}
{"Action":"pass","Package":"m/a","Test":"TestA/one_case/its_part","Elapsed":7}
{"Action":"pass","Package":"m/a","Test":"TestA/one_case","Elapsed":8}
{"Action":"fail","Package":"m/a","Test":"TestA/fails","Elapsed":9}
{"Action":"pass","Package":"m/a","Test":"TestA","Elapsed":30}
`
	s, err := summarize(strings.NewReader(stream), &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "| test | seconds |\n|---|---:|\n| `a.TestA` | 30 |\n| `a.TestA/one_case` | 8 |\n| `test/b.TestB` | 6 |\n"
	if table := s.times.table(); table != want {
		t.Errorf("got\n%s, want\n%s", table, want)
	}
	if table := (times{}).table(); table != "" {
		t.Errorf("of nothing: %s", table)
	}
}
