package hostimages_test

import (
	"encoding/json"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
)

// judge writes a signature policy with one scope of images in registries, and the rule for all others.
func (i *images) judge(t *testing.T, scope, rule, others string) {
	t.Helper()
	of := func(rule string) []map[string]string { return []map[string]string{{"type": rule}} }
	text, err := json.Marshal(map[string]any{"default": of(others), "transports": map[string]any{"docker": map[string]any{scope: of(rule)}}})
	must(t, err)
	i.host.Write("/etc/containers/policy.json", text)
}

// TestJudgedAsAskedFor: an image that was asked for by its tag is judged by the rule for that tag until it is imported.
// What is imported is what the tag was resolved to. One that was asked for by its digest is not judged by a tag.
func TestJudgedAsAskedFor(t *testing.T) {
	const accept, reject = "insecureAcceptAnything", "reject"
	i := imagesOf(t)
	i.host.Serve(i.host.NativeImage())
	tag := i.tagged()
	i.judge(t, tag.Name.String(), accept, reject)
	pinned, err := i.Resolve(t.Context(), tag)
	must(t, err)
	if pinned.Reference().String() != i.host.Image || pinned.Follows() != tag.Name {
		t.Errorf("resolved to %+v", pinned)
	}
	i.host.Push(i.host.NativeImage(bringing(`kargs = ["moved=1"]`))) // the tag moves
	must(t, i.Check(t.Context(), pinned))
	i.Close()
	image, err := i.Import(t.Context(), pinned, func(pivot.Amount) {})
	must(t, err)
	if own, err := i.Arguments(image.Commit); err != nil || image.Reference() != pinned.Reference() || own.Line.String() != "" {
		t.Errorf("imported %+v, which brings %q, %v", image, own.Line, err)
	}
	alone := pivot.ImageOf(pinned.Reference())
	must(t, i.Check(t.Context(), pinned)) // it stays open, but not for another name
	_, err = i.Import(t.Context(), alone, func(pivot.Amount) {})
	for _, err := range []error{err, i.Check(t.Context(), alone), i.Extensions().Check(t.Context(), alone)} {
		expect(t, err, fault.Refused, "by default: reject")
	}

	i.judge(t, tag.Name.String(), reject, accept)
	_, err = i.Import(t.Context(), pinned, func(pivot.Amount) {})
	for _, err := range []error{err, i.Check(t.Context(), pinned), i.Extensions().Check(t.Context(), pinned)} {
		expect(t, err, fault.Refused, "by transports.docker[\""+tag.Name.String()+"\"]: reject")
	}
	must(t, i.Check(t.Context(), alone))
}

// TestExtensionsAskedFor: the same of an extensions image.
func TestExtensionsAskedFor(t *testing.T) {
	need.Program(t, "createrepo_c")
	i := imagesOf(t)
	img, err := oscontainer.Extensions([]oscontainer.RPM{{Name: "usbguard", Version: "1.0"}}, oscontainer.WithWorkDir(t.TempDir()))
	must(t, err)
	i.host.Push(img)
	i.judge(t, i.tagged().Name.String(), "insecureAcceptAnything", "reject")
	pinned, err := i.Resolve(t.Context(), i.tagged())
	must(t, err)
	i.host.Push(i.host.NativeImage()) // the tag moves
	must(t, i.Extensions().Check(t.Context(), pinned))
	repository, err := i.Extensions().Fetch(t.Context(), pinned, func(pivot.Amount) {})
	if err != nil || len(repository.Names) != 1 {
		t.Errorf("%+v, %v", repository, err)
	}
	must(t, i.Extensions().Release())
}
