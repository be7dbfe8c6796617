#!/bin/sh
# Says which package has which of the files that "make install" put into a directory:
# files.sh PACKAGE DIR prints the paths, from /, one in a line.
# A file belongs to a package by its path, so what "make install" adds is packaged too.
set -eu
case $1 in
pivotctl) of='-path *pivotctl*' ;;
pivot-dracut) of='-path */dracut/*' ;;
pivot-selinux) of='-path */selinux/*' ;;
pivot) of='-not -path *pivotctl* -not -path */dracut/* -not -path */selinux/*' ;;
*)
	echo "files.sh: there is no package $1" >&2
	exit 64
	;;
esac
set -f # the patterns are for find
# shellcheck disable=SC2086 # several words
find "$2" \( -type f -o -type l \) $of -printf '/%P\n' | sort
