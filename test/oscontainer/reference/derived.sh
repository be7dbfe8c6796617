#!/bin/bash
# Gives the reference implementation the derived and plain images of package
# osimage's tests, and keeps what it makes of each. As root, with libostree 2024.5
# or newer (Debian 13), skopeo, cargo, and the headers of libostree, OpenSSL and zstd
# (Debian: libostree-dev libssl-dev libzstd-dev pkg-config). Run by "make reference".
#
#	PIVOT_REFERENCE   the program, if it was built before, elsewhere
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
target=internal/osimage/testdata/reference/derived

version=$(ostree --version | sed -n "s/^ Version: '\(.*\)'/\1/p")
if [ "$(printf '%s\n' 2024.5 "$version" | sort -V | head -n1)" != 2024.5 ]; then
	# Older ones fail at a directory in place of a link, and move /var.
	echo "libostree is $version, want 2024.5 or newer" >&2
	exit 1
fi
if [ -z "${PIVOT_REFERENCE:-}" ]; then
	export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-/var/tmp/reference/cargo}
	cargo build --quiet --locked --release --manifest-path "$here/Cargo.toml"
	export PIVOT_REFERENCE=$CARGO_TARGET_DIR/release/reference
fi
rm -rf "$target" && mkdir "$target"
go test -count 1 -timeout 60m -run '^(TestDerived|TestDerivedPolicy|TestChangedObjects|TestSparse|TestDerivedRefused|TestPlain)$' ./internal/osimage
