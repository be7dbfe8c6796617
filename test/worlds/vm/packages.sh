# Unpacks Debian packages into a directory, and modules of the kernel that the guest has but its tree does not:
# packages.sh DIR ROOTFS SUITE PACKAGES MODULE...
set -euo pipefail
dir=$1 rootfs=$2 suite=$3 packages=$4
shift 4

# As in guest/rootfs.sh: this machine's own Debian sources, if it is Debian, else mmdebstrap's default.
own=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
# shellcheck disable=SC2016 # apt expands the variables
mapfile -t sources < <(
	apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		sed -nE "s/ $own(-updates|-security)? main\$/ $suite\1 main/p" | sort -u
)
[[ " ${sources[*]-} " == *" $suite main "* ]] || sources=()
valid=$(apt-config shell valid Acquire::Check-Valid-Until/b 2>/dev/null) && eval "$valid"
mmdebstrap --quiet --mode=root --variant=extract --components=main --aptopt='APT::Install-Recommends "false"' \
	--aptopt="Acquire::Check-Valid-Until \"${valid:-true}\"" --include="$packages" "$suite" "$dir" ${sources[@]+"${sources[@]}"}

mkdir "$dir/modules"
for module; do
	tar -xf "$rootfs" -C "$dir/modules" --wildcards --transform 's|.*/||' "./usr/lib/modules/*/$module"
done
