# Deploys a commit to a sysroot that has it with the ostree of that commit: deploy.sh SYSROOT COMMIT ARGUMENT...
# It must run in its own mount namespace.
set -euo pipefail
sysroot=$1 commit=$2
shift 2

tree=$sysroot.tree
ostree checkout --repo="$sysroot/ostree/repo" --require-hardlinks "$commit" "$tree"
mkdir -p "$tree/etc"
mount --bind "$tree/usr/etc" "$tree/etc"
mount -t proc proc "$tree/proc"
mount --bind /dev "$tree/dev"
for dir in run var; do
	mount -t tmpfs tmpfs "$tree/$dir"
done
mkdir "$tree/var/tmp"
mount --bind "$sysroot" "$tree/sysroot"
chroot "$tree" ostree admin deploy --sysroot=/sysroot "$@"

umount --recursive "$tree/sysroot" "$tree/var" "$tree/run" "$tree/dev" "$tree/proc" "$tree/etc"
rm -rf "$tree"
