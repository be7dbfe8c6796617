package osimage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// maxTrees is how many trees of the repository are searched for a layer's files: those of the booted and the other
// deployments, and of an image imported before.
const maxTrees = 3

// localContent finds content of an image's layers that the repository has already. The objects of an
// ostree-native container have their checksum as their name. Other files are looked for at their path in
// the trees of deployments, and, if they are not there, by their content.
type localContent struct {
	target *ostree.Import
	trees  []ostree.Checksum // root directories
	xattrs xattrSets
	index  *contentIndex
}

// open opens content that a finder has found.
func (l *localContent) open(n ostree.ObjectName) (io.ReadCloser, error) {
	if n.Type == xattrSet {
		return l.xattrs.open(n), nil
	}
	return l.target.OpenContent(n)
}

// newLocalContent returns the local content of an import. It is nil if there is none: the
// repository has no commit, and no import was interrupted.
func newLocalContent(repo *ostree.Repo, target *ostree.Import) *localContent {
	refs, err := repo.Refs("")
	if err != nil || len(refs) == 0 && !target.Resumes() {
		return nil
	}
	l := &localContent{target: target, xattrs: xattrSets{target: target}, index: &contentIndex{repo: repo, target: target}}
	for _, ref := range slices.SortedFunc(maps.Keys(refs), treesFirst) {
		if ofLayer(ref) || len(l.trees) == maxTrees {
			break
		}
		info, err := repo.LoadCommit(refs[ref])
		if err == nil && !slices.Contains(l.trees, info.RootTree) {
			l.trees = append(l.trees, info.RootTree)
		}
	}
	return l
}

// treesFirst orders refs by how likely their commits have the files of an update: those of deployments
// (ostree/BOOT/SUB/INDEX), of images, others, and last those of layers.
func treesFirst(a, b string) int {
	rank := func(ref string) int {
		switch {
		case ofLayer(ref):
			return 3
		case strings.HasPrefix(ref, imageRefs):
			return 1
		case strings.HasPrefix(ref, "ostree/"):
			return 0
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
}

// finder finds the content of one layer. It is used by one goroutine.
type finder struct {
	*localContent
	ctx     context.Context
	derived bool                       // a derived layer
	dirs    []openDir                  // by tree
	large   map[string]ostree.Checksum // objects of large files, by their places

	inVain int64 // bytes of objects that were read at a file's path, with other content
	names  int   // in directories that were read
}

// A file is large from minLarge bytes on. Objects of more than maxLarge files are not remembered,
// which take some 150 bytes each.
const (
	minLarge = 1 << 20
	maxLarge = 16 << 10
	maxNames = 4 << 20 // names in directories that are read for a layer, each time that they are
)

// openDir is a directory that was read last, at some depth of a tree.
type openDir struct {
	path string
	dir  *ostree.Directory // nil if there is none
}

func (l *localContent) finder(ctx context.Context, derived bool) *finder {
	return &finder{localContent: l, ctx: ctx, derived: derived, dirs: make([]openDir, len(l.trees)), large: map[string]ostree.Checksum{}}
}

// find returns an object of the repository that has the content of a file.
func (f *finder) find(file layer.ChunkedFile) (ostree.ObjectName, bool) {
	if f.ctx.Err() != nil {
		return ostree.ObjectName{}, false
	}
	if !f.derived {
		n, xattrs, is := layer.ObjectOf(file.Name)
		if xattrs {
			return f.xattrs.find(file, n.Checksum)
		}
		if size, found := f.target.ContentSize(n); is && found && size == file.Size {
			return n, true // the object itself, which is not written again
		}
		return f.index.find(file)
	}
	n, found := f.atPath(file)
	if !found {
		n, found = f.index.find(file)
	}
	if found && file.Size >= minLarge && len(f.large) < maxLarge {
		f.large[layer.Place(file.Name)] = n.Checksum
	}
	return n, found
}

// expected returns the object that find has found for a large file, which probably has the file's
// metadata, too.
func (f *finder) expected(name string) (object ostree.Checksum, found bool) {
	object, found = f.large[layer.Place(name)]
	return object, found
}

// atPath looks for a file at its path in the trees.
func (f *finder) atPath(file layer.ChunkedFile) (n ostree.ObjectName, found bool) {
	at := layer.Place(file.Name)
	if at == "" {
		return n, false
	}
	for i := range f.trees {
		dir := f.directory(i, path.Dir(at))
		if dir == nil {
			continue
		}
		object, there := dir.Files[path.Base(at)]
		n = ostree.ObjectName{Checksum: object, Type: ostree.File}
		if !there {
			continue
		}
		if size, found := f.target.ContentSize(n); !found || size != file.Size || f.inVain > maxInVain {
			continue
		}
		if digest, err := digestOf(f.target, n); err == nil && digest == file.Digest {
			return n, true
		}
		f.inVain += file.Size
	}
	return n, false
}

// directory returns a directory of the ith tree, or nil. The files of a layer are in the order of their
// directories, so the last one is kept.
func (f *finder) directory(i int, at string) *ostree.Directory {
	last := &f.dirs[i]
	if last.path != at || last.dir == nil {
		last.path, last.dir = at, f.readDirectory(f.trees[i], at)
	}
	return last.dir
}

func (f *finder) readDirectory(tree ostree.Checksum, at string) *ostree.Directory {
	dir, err := f.target.ReadDirectory(tree)
	for name := range strings.SplitSeq(at, "/") {
		if err != nil || f.names > maxNames {
			return nil
		}
		if f.names += len(dir.Files) + len(dir.Dirs); name == "." {
			continue
		}
		below, found := dir.Dirs[name]
		if !found {
			return nil
		}
		dir, err = f.target.ReadDirectory(below.Tree)
	}
	return dir
}

// digestOf returns the digest of an object's content.
func digestOf(target *ostree.Import, n ostree.ObjectName) (digest [sha256.Size]byte, err error) {
	body, err := target.OpenContent(n)
	if err != nil {
		return digest, err
	}
	defer body.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, body)
	return [sha256.Size]byte(sum.Sum(nil)), err
}
