#!/bin/sh
# Makes the files of a release: release.sh DIR VERSION. DIR gets the archive, the packages, the container images, what
# kubectl and Helm apply, the modules of each program (CycloneDX), and the checksums of all. It makes nothing while the
# owner's values or the tag are missing.
set -eu
dir=$1
version=$2
cd "$(dirname "$0")/.."

refuse() { echo "cannot make a release: $1" >&2; refused=1; }
refused=
value() { sed -n "s/^$1=//p" packaging/project; }
for name in LICENSE HOMEPAGE MAINTAINER REGISTRY; do
	case $(value $name) in
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
archive() { # a directory, the archive's name, options of tar
	from=$1 to=$2
	shift 2
	tar -c -C "$bin" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" --mode=u=rwX,go=rX "$@" "$from" |
		gzip -n >"$dir.new/$to.tar.gz"
}
for image in image agent-image fleet-image; do
	archive "$image" "pivot-$version-$image"
done
make -s install-yaml REGISTRY="$(value REGISTRY)" BIN="$bin" VERSION="$version"
mv "$bin"/install.yaml "$bin"/webhooks.yaml "$bin"/server.yaml "$dir.new"
archive chart "pivot-$version-chart" --transform 's,^chart,pivot,'
# This tool prints the time of the run.
for program in pivot pivotctl pivot-agent pivot-fleet; do
	go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -noserial -version "$version" "$bin/$program" |
		sed "s|\"timestamp\": \"[^\"]*\"|\"timestamp\": \"$(date -u -d "@$time" +%FT%TZ)\"|" >"$dir.new/$program-$version.cdx.json"
done
rm -rf "$bin"
(cd "$dir.new" && sha256sum -- * >SHA256SUMS)
mv "$dir.new" "$dir"
ls "$dir"
