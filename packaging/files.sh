#!/bin/sh
# Assigns the files that "make install" has put into a directory to packages:
# files.sh PACKAGE DIR prints the absolute paths of a package's files, one per line.
# The path of a file decides, so files that "make install" adds later are packaged too.
set -eu
case $1 in
pivot-agent) of='-path *pivot-agent*' ;;
pivot-fleet) of='-path *pivot-fleet*' ;;
pivotctl) of='-path *pivotctl*' ;;
pivot-dracut) of='-path */dracut/*' ;;
pivot-selinux) of='-path */selinux/*' ;;
pivot) of='-not -path *pivotctl* -not -path *pivot-agent* -not -path *pivot-fleet* -not -path */dracut/* -not -path */selinux/*' ;;
*)
	echo "files.sh: there is no package $1" >&2
	exit 64
	;;
esac
set -f # find, not the shell, must expand the patterns
# shellcheck disable=SC2086 # $of has several words
find "$2" \( -type f -o -type l \) \( $of \) -printf '/%P\n' | sort
