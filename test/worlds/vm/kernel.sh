# Puts another kernel of Debian into a guest's tree, in place of its own:
# kernel.sh TREE PACKAGE. PACKAGE is one that depends on the kernel's package.
set -euo pipefail
tree=$1 package=$2
own=$(ls "$tree/usr/lib/modules")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fetch() { apt-get -q download "$image" >&2 || { apt-get -q update >&2 && apt-get -q download "$image" >&2; }; }
[ -n "$(apt-cache show "$package" 2>/dev/null)" ] || apt-get -q update >&2
image=$(apt-cache show "$package" | sed -n 's/^Depends:.*\(linux-image-[^ ,]*\).*/\1/p' | head -n 1)
fetch
dpkg-deb -x linux-image-*.deb new
release=$(ls new/lib/modules)

rm -r "$tree/usr/lib/modules/$own"
mv "new/lib/modules/$release" "$tree/usr/lib/modules"
cp "new/boot/vmlinuz-$release" "$tree/usr/lib/modules/$release/vmlinuz"
chroot "$tree" depmod "$release"
# As in tree.sh: what the virtual machine has, or can have, with all that depends on.
for module in virtio_net virtio_blk virtio_pci virtio_rng ahci sd_mod e1000e overlay erofs loop af_packet xfs ext4; do
	# Fails for what is built in, and for what this kernel lacks.
	chroot "$tree" modprobe -S "$release" --show-depends $module 2>/dev/null || true
done | awk '$1 == "insmod" { sub(".*/lib/modules/", "usr/lib/modules/", $2); print $2 }' | sort -u >wanted
(cd "$tree" && find "usr/lib/modules/$release/kernel" -name '*.ko*') | grep -vxF -f wanted | sed "s|^|$tree/|" | xargs rm -f
chroot "$tree" depmod "$release"
