package osimage_test

import (
	"errors"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// TestDerivedLabelUnknown: if the image's policy gives a label that the running policy
// does not know and does not let be stored, the import fails and names the label. This
// applies to objects of the base, of a layer and of a plain image, guessed or not.
func TestDerivedLabelUnknown(t *testing.T) {
	const unknown = "system_u:object_r:unknown_t:s0"
	const file = "etc/selinux/small/contexts/files/file_contexts"
	derived := func(rule string) func(*osTree) v1.Image {
		layer := oscontainer.WithDerived(regular("usr/share/later", "later"), regular(file, contexts+rule+" "+unknown+"\n"))
		return func(o *osTree) v1.Image { return o.encapsulated(layer) }
	}
	plain := func(o *osTree) v1.Image {
		o.write("usr/"+file, contexts+"/usr/share/dir/a -- "+unknown+"\n")
		return plainImage(o.t, o, 3)
	}
	for name, c := range map[string]struct {
		image func(*osTree) v1.Image
		host  string // the host's file_contexts, for guessing labels
	}{
		"file of the base":      {derived("/usr/share/dir/a --"), ""},
		"directory of the base": {derived("/usr/share/private -d"), ""},
		"link of the base":      {derived("/bin -l"), ""},
		"file of a layer":       {derived("/usr/share/later --"), ""},
		"guessed otherwise":     {derived("/usr/share/later --"), contexts},
		"guessed":               {derived("/usr/share/later --"), contexts + "/usr/share/later -- " + unknown + "\n"},
		"plain":                 {plain, contexts},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 6)
			h := newHost(t, registry.Options{})
			if c.host != "" {
				h.givePolicy(c.host)
			}
			ref, _ := h.push("x", c.image(newOSTree(t)))
			repo, refused := openRepo(t, bare(t)), true
			repo.CheckLabels(func(label string) error {
				if label == unknown && refused {
					return hostfiles.ErrUnknownLabel
				}
				return nil
			})
			open := func() error {
				image, err := h.puller.Open(t.Context(), ref)
				if err != nil {
					return err
				}
				defer image.Close()
				_, err = image.Import(t.Context(), repo, h.report)
				return err
			}
			err := open()
			wrong, _ := errors.AsType[*ostree.LabelError](err)
			if wrong == nil || wrong.Label != unknown || fault.KindOf(err) != fault.Refused || !strings.Contains(fault.HintOf(err), "install_exec_t") {
				t.Errorf("error %v, hint %q", err, fault.HintOf(err))
			}
			if refs := ostreeTool(t, "refs", "--repo="+repo.Path(), "--list", "ostree/container/image"); refs != "" {
				t.Errorf("refs %s", refs)
			}
			refused = false
			if err := open(); err != nil {
				t.Error(err)
			}
		})
	}
}
