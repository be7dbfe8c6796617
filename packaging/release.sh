#!/bin/sh
# Makes the files of a release: release.sh DIR VERSION. DIR gets the archive, the packages, the container images, the modules of
# each program (CycloneDX), and the checksums of all. It makes nothing while the owner's values or the tag are missing.
set -eu
dir=$1
version=$2
cd "$(dirname "$0")/.."

refuse() { echo "cannot make a release: $1" >&2; refused=1; }
refused=
for name in LICENSE HOMEPAGE MAINTAINER; do
	case $(sed -n "s/^$name=//p" packaging/project) in
	'' | unset*) refuse "packaging/project does not set $name" ;;
	esac
done
case $version in
0* | *+* | *.dirty) refuse "the version is $version: commit all changes, and tag the commit vX.Y.Z" ;;
esac
[ ! -e "$dir" ] || refuse "$dir exists: remove it, or give another DIST="
[ -z "$refused" ] || exit 1

trap 'rm -rf "$dir.new"' EXIT
rm -rf "$dir.new"
make -s build dist deb rpm image agent-image fleet-image BIN="$dir.new/bin" DIST="$dir.new"
bin=$dir.new/bin
time=$(git log -1 --format=%ct)
for image in image agent-image fleet-image; do
	tar -c -C "$bin" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" --mode=u=rwX,go=rX "$image" |
		gzip -n >"$dir.new/pivot-$version-$image.tar.gz"
done
# This tool prints the time of the run.
for program in pivot pivotctl pivot-agent pivot-fleet; do
	go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -noserial -version "$version" "$bin/$program" |
		sed "s|\"timestamp\": \"[^\"]*\"|\"timestamp\": \"$(date -u -d "@$time" +%FT%TZ)\"|" >"$dir.new/$program-$version.cdx.json"
done
rm -rf "$bin"
(cd "$dir.new" && sha256sum -- * >SHA256SUMS)
mv "$dir.new" "$dir"
ls "$dir"
