#!/bin/bash
# Imports the derived and plain images of package osimage's tests with the reference
# implementation, and stores the result for each. "make reference" runs it, as root.
# It needs libostree 2024.5 or newer (Debian 13), skopeo, cargo, and the headers of
# libostree, OpenSSL and zstd (Debian: libostree-dev libssl-dev libzstd-dev pkg-config).
#
#	PIVOT_REFERENCE   the program of the reference, if it is already built
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
target=internal/osimage/testdata/reference/derived

version=$(ostree --version | sed -n "s/^ Version: '\(.*\)'/\1/p")
if [ "$(printf '%s\n' 2024.5 "$version" | sort -V | head -n1)" != 2024.5 ]; then
	# Older releases fail if a directory replaces a link, and move files of /var.
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
