#!/bin/bash
# What the machine-config-daemon does on the second boot, when kubelet runs: the previous deployment goes, and
# here the OS image, which nothing else would remove.
set -euo pipefail
. /etc/today/settings

echo "@@step clean-up"
mount -o remount,rw /sysroot
ostree config --repo=/sysroot/ostree/repo set core.fsync true
podman rmi "$IMAGE"
ostree admin undeploy 1
echo "@@step end"
