package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
)

// pushed pushes an image and returns the path of its only layer.
func pushed(t *testing.T, r *Registry) (blob string) {
	t.Helper()
	img, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Push(t.Context(), "a/b", "tag", img); err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return "/v2/a/b/blobs/" + digest.String()
}

func TestFaults(t *testing.T) {
	r, client := start(t)
	blob := pushed(t, r)
	_, whole, err := get(t, r, client, blob, "")
	if err != nil {
		t.Fatal(err)
	}
	flipped := []byte(whole)
	flipped[500] ^= 0x40
	for name, c := range map[string]struct {
		fault  Fault
		rang   string
		status int
		want   string
		err    error
	}{
		"status":            {Status(503), "", 503, "", nil},
		"cut":               {CutAt(500), "", 200, whole[:500], io.ErrUnexpectedEOF},
		"cut a part":        {CutAt(500), "bytes=300-", 206, whole[300:500], io.ErrUnexpectedEOF},
		"cut before a part": {CutAt(200), "bytes=300-", 206, whole[300:], nil},
		"end":               {EndAt(500), "", 200, whole[:500], nil},
		"cut after":         {CutAfter(100), "bytes=300-", 206, whole[300:400], io.ErrUnexpectedEOF},
		"drip":              {Drip(0), "", 200, whole, nil},
		"flip":              {FlipAt(500), "", 200, string(flipped), nil},
		"flip in a part":    {FlipAt(500), "bytes=400-", 206, string(flipped[400:]), nil},
		"trail":             {Trail("more"), "", 200, whole + "more", nil},
		"shorter":           {Length(-10), "", 200, whole[:len(whole)-10], nil},
		"longer":            {Length(10), "", 200, whole, io.ErrUnexpectedEOF},
		"longer part":       {Length(10), "bytes=300-", 206, whole[300:], io.ErrUnexpectedEOF},
		"no ranges":         {NoRanges(), "bytes=300-", 200, whole, nil},
		"other range":       {OtherRange("bytes=100-200"), "bytes=300-", 206, whole[100:201], nil},
	} {
		r.Spoil(Rule{On: "/blobs/", Times: 1, Fault: c.fault})
		status, body, err := get(t, r, client, blob, c.rang)
		if c.status >= 400 {
			body = ""
		}
		if status != c.status || body != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: status %d, %d bytes, want %d, %v", name, status, len(body), len(c.want), err)
		}
		if status, body, err := get(t, r, client, blob, ""); status != 200 || body != whole || err != nil {
			t.Errorf("after %s: status %d, %d of %d bytes, %v", name, status, len(body), len(whole), err)
		}
	}
}

func TestStall(t *testing.T) {
	r, client := start(t)
	blob := pushed(t, r)
	r.Spoil(Rule{Fault: StallAt(500)})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := client.Do(request(t, r, blob, "").WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 500)); err != nil {
		t.Error(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d more bytes, %v", len(rest), err)
	}
}

func TestRules(t *testing.T) {
	r, client := start(t)
	blob := pushed(t, r)
	r.Spoil(
		Rule{On: "/blobs/", Range: true, Fault: Status(416)},
		Rule{On: "/blobs/", Skip: 1, Times: 2, Fault: Status(503)},
		Rule{On: "/blobs/", Times: 1, Fault: WebPage()},
		Rule{On: "/manifests/", Fault: Redirect("")},
	)
	for i, want := range []int{200, 503, 503, 200, 200} {
		status, body, err := get(t, r, client, blob, "")
		if status != want || err != nil || strings.HasPrefix(body, "<!DOCTYPE html>") != (i == 3) {
			t.Errorf("%d: status %d, want %d, %v", i, status, want, err)
		}
		if status, _, err := get(t, r, client, blob, "bytes=1-"); status != 416 || err != nil {
			t.Errorf("%d: part: status %d, %v", i, status, err)
		}
	}
	if _, _, err := get(t, r, client, "/v2/a/b/manifests/tag", ""); err == nil || !strings.Contains(err.Error(), "10 redirects") {
		t.Errorf("redirects: %v", err)
	}
}

func TestBearer(t *testing.T) {
	r, client := startWith(t, Options{Bearer: true})
	if status, _, err := get(t, r, client, "/v2/", ""); status != 401 || err != nil {
		t.Errorf("with a password: status %d, %v", status, err)
	}
	if status, body, err := get(t, r, client, "/token", ""); status != 200 || !bytes.Contains([]byte(body), []byte(bearer)) || err != nil {
		t.Errorf("token: status %d, %s, %v", status, body, err)
	}
	req := request(t, r, "/v2/", "")
	req.Header.Set("Authorization", "Bearer "+bearer+"0")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("with a token: status %d", resp.StatusCode)
	}
	r.ExpireTokens()
	resp, err = client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("with a token that expired: status %d", resp.StatusCode)
	}
}
