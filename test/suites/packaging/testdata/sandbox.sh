#!/bin/sh
# Runs a script in a copy of the running system that is thrown away: sandbox.sh EMPTY SCRIPT DIR [ARG]...
# The script sees DIR as /packages. The copy is mounted on the directory EMPTY. In a mount namespace of its own the root directory is an
# overlay over the system's, with its upper layer in memory: nothing that is installed or
# removed there reaches the system. Nothing of /dev, /run, /proc or /sys is shared but proc.
set -eu
if [ "${SANDBOX:-}" != yes ]; then
	SANDBOX=yes exec unshare --mount --propagation private --net --pid --fork "$0" "$@"
fi
base=$1
script=$(realpath "$2")
packages=$(realpath "$3")
shift 3
mount -t tmpfs -o mode=0755 sandbox "$base"
mkdir "$base"/upper "$base"/work "$base"/root
mount -t overlay -o lowerdir=/,upperdir="$base"/upper,workdir="$base"/work sandbox "$base"/root
cd "$base"/root
mkdir -p run tmp proc packages
mount -t tmpfs -o mode=0755 run run
mount -t tmpfs tmp tmp
mount -t proc proc proc
[ -c dev/null ] || mknod -m 0666 dev/null c 1 3
cp "$packages"/* packages
cp "$script" tmp/script
exec chroot . /bin/sh -eu /tmp/script "$@"
