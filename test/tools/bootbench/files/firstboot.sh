#!/bin/bash
# A first boot as the machine-config-daemon does it, from Debian's parts: podman, and ostree instead of
# rpm-ostree. Each step is said on the console. TOOL, IMAGE, COMMIT, FSYNC and KARGS come from the settings.
set -euo pipefail
. /etc/today/settings
secret=/var/lib/kubelet/config.json
config=/etc/ignition-machine-config-encapsulated.json

step() { echo "@@step $1"; }

# replace replaces a file durably.
replace() {
	mkdir -p "$(dirname "$2")"
	cp "$1" "$2.new"
	sync "$2.new"
	mv "$2.new" "$2"
}

step "tool image: pull"
podman pull -q --authfile $secret "$TOOL"

step "tool image: run"
mkdir -p /run/bin
podman run --rm --privileged --net=host --cgroups=disabled -v /run/bin:/host/run/bin --entrypoint /bin/cp "$TOOL" \
	/usr/bin/machine-config-daemon /host/run/bin/machine-config-daemon
[ -s /run/bin/machine-config-daemon ]

step "files in /etc"
(cd /etc/today/files && find . -type f) | while read -r file; do
	replace "/etc/today/files/$file" "/$file"
done

step "OS image: pull"
podman pull -q --authfile $secret "$IMAGE"
mounted=$(podman image mount "$IMAGE")

step "pull-local"
mount -o remount,rw /sysroot # only in the mount namespace of this unit
repo=--repo=/sysroot/ostree/repo
ostree config $repo set core.fsync "$FSYNC"
ostree pull-local $repo "$mounted/srv/repo" "$COMMIT"
podman image unmount "$IMAGE" >/dev/null

step "deploy --stage"
arguments=()
for argument in $KARGS; do
	arguments+=("--karg-append=$argument")
done
ostree admin deploy --stage "${arguments[@]}" "$COMMIT"
mv $config $config.bak
# Without this the reboot can come before the unit that finalizes the deployment.
until systemctl -q is-active ostree-finalize-staged.service; do
	sleep 0.1
done

step "shutdown"
systemctl reboot
sleep infinity # kubelet must not start
