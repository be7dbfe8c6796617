#!/bin/bash
# Encapsulates the small tree of package ostreetree with the reference
# implementation, pulls the images with it into bare repositories, and stores the
# images and the results. Needs root, cargo, skopeo, ostree, and the headers of
# libostree, OpenSSL and zstd (Debian: libostree-dev libssl-dev libzstd-dev pkg-config).
#
#	make.sh TARGET      (a directory that is replaced; see its README.md)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: make.sh TARGET}"
target=$(realpath "$1")
work=/var/tmp/reference # the names of refs depend on this path
rm -rf "$work" && mkdir -p "$work"
find "$target" -mindepth 1 -maxdepth 1 ! -name README.md ! -name derived -exec rm -rf {} +

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$work/cargo}
cargo build --quiet --locked --release --manifest-path "$here/Cargo.toml"
reference=$CARGO_TARGET_DIR/release/reference
helper() { (cd "$here" && go run . "$@"); }

# Make the commit.
source=$work/source
helper tree "$work/tree"
ostree init --repo="$source" --mode=bare
ostree commit --repo="$source" --branch=test/os --subject='a test' --timestamp=@1700000000 --bootable \
	--add-metadata-string=version=1.2.3 --add-detached-metadata-string=test.signature=none --tree=dir="$work/tree" >"$target/commit"
ostree ls --repo="$source" -R -C -X test/os >"$target/tree"
(cd "$source/objects" && find . ! -type d | cut -c3- | sort) >"$target/objects"

# Define three components. The first digit of a content object's checksum selects its component.
{
	echo '{"version": 1, "layers": {"one": "One", "two": "Two", "three": "Three"}, "mapping": {'
	sed -n 's|^\(..\)/\(.*\)\.file$|\1\2|p' "$target/objects" |
		sed 's|^[0-5].*|"&": "one",|; s|^[6-9a].*|"&": "two",|; s|^[b-f].*|"&": "three",|; $s|,$||'
	echo '}}'
} >"$work/components.json"

encapsulate() { # NAME ARGUMENTS...
	local name=$1
	shift
	mkdir "$work/$name"
	"$reference" container encapsulate --repo="$source" "$@" test/os "oci:$work/$name" >/dev/null
}
encapsulate single
encapsulate chunked --contentmeta="$work/components.json"
helper derive "$work/chunked" "$work/layered"

# Pull each image with the reference, and store the result.
for name in single chunked layered; do
	repo=$work/repo-$name
	ostree init --repo="$repo" --mode=bare
	"$reference" container image pull --quiet "$repo" "ostree-unverified-image:oci:$work/$name"
	ostree fsck --quiet --repo="$repo"
	mkdir "$target/$name" "$target/$name/commits"
	cp -r "$work/$name" "$target/$name/image"
	for ref in $(ostree refs --repo="$repo" | sort); do
		commit=$(ostree rev-parse --repo="$repo" "$ref")
		echo "$ref $commit"
		cp "$repo/objects/${commit:0:2}/${commit:2}.commit" "$target/$name/commits/$commit"
		case $ref in */image/*) ostree ls --repo="$repo" -R -C -X "$ref" >"$target/$name/merged" ;; esac
	done >"$target/$name/refs"
done

# Check that the reference uses pivot's imports like its own: it finds the image, and
# for another image the layers that both have.
make -s -C "$here/../../.." build BIN="$work"
ostree init --repo="$work/repo-ours" --mode=bare
"$work/pivot" image import "oci:$work/chunked" --repo "$work/repo-ours" >/dev/null
"$reference" container image pull "$work/repo-ours" "ostree-unverified-image:oci:$work/chunked" | grep '^No changes'
"$reference" container image pull "$work/repo-ours" "ostree-unverified-image:oci:$work/layered" 2>&1 | grep '^layers already present: 5; layers needed: 2 '
