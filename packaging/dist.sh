#!/bin/sh
# Writes the source archive of a version: dist.sh FILE VERSION. The archive has the last commit,
# the vendored modules, because distributions build without a network, and the metadata for
# dpkg-buildpackage and rpmbuild. It is reproducible:
# all times are those of the commit, and the modes do not depend on the caller's umask.
set -eu
umask 022
out=$(realpath "$1")
version=$2
cd "$(dirname "$0")/.."
commit_time=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=pivot-$version
tree=$work/$name

mkdir "$tree"
git archive HEAD | tar -x --no-same-permissions -C "$tree"
echo "$version" >"$tree/.tarball-version"
(cd "$tree" && go mod vendor)

value() { sed -n "s/^$1=//p" packaging/project; }
fill() {
	sed -e "s|@VERSION@|$version|" -e "s|@LICENSE@|$(value LICENSE)|" -e "s|@HOMEPAGE@|$(value HOMEPAGE)|" \
		-e "s|@MAINTAINER@|$(value MAINTAINER)|" -e "s|@DATE@|$(LC_ALL=C date -u -R -d "@$commit_time")|" \
		-e "s|@DAY@|$(LC_ALL=C date -u -d "@$commit_time" '+%a %b %d %Y')|"
}
mv "$tree/packaging/debian" "$tree/debian"
for file in control changelog copyright; do
	fill <"$tree/debian/$file.in" >"$tree/debian/$file"
	rm "$tree/debian/$file.in"
done
fill <"$tree/packaging/pivot.spec.in" >"$tree/pivot.spec"
units=$(sed -n 's/^enable //p' systemd-units/80-pivot.preset | paste -sd' ' -)
sed -i "s|@UNITS@|$units|" "$tree/pivot.spec"

tar -c -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$commit_time" \
	--mode=u=rwX,go=rX --format=gnu "$name" | gzip -n -9 >"$out.new"
mv "$out.new" "$out"
