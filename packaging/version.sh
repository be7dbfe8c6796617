#!/bin/sh
# Prints the version of this source, in a form that dpkg, rpm and make accept unchanged:
#   1.4.0            the commit with the tag v1.4.0
#   1.4.0~rc.1       the tag v1.4.0-rc.1, which sorts before 1.4.0
#   1.4.0+7.g1a2b3c4 seven commits after it
#   0+412.g1a2b3c4   the 412th commit of a history without such a tag
#   0+unknown        neither a source archive nor a usable checkout
# ".dirty" is appended if the checkout has uncommitted changes.
set -u
cd "$(dirname "$0")/.." || exit

# A source archive has its version in a file. It may be unpacked inside an unrelated checkout.
if [ -e .tarball-version ]; then
	exec cat .tarball-version
fi
top=$(git rev-parse --show-toplevel 2>/dev/null)
if [ "$top" != "$(pwd -P)" ] || ! commit=$(git rev-parse --short=7 --verify -q HEAD); then
	echo 0+unknown
	exit
fi
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
	version=$(echo "${tag#v}" | tr - '~')
	since=$(git rev-list --count "$tag..HEAD")
else
	version=0
	since=$(git rev-list --count HEAD)
fi
[ "$since" = 0 ] || version=$version+$since.g$commit
git diff --quiet HEAD -- 2>/dev/null || version=$version.dirty
echo "$version"
