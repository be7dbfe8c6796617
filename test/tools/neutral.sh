#!/bin/sh
# Runs a program in surroundings that are the same on each host: go test -exec test/tools/neutral.sh. What a host's
# administrator has set changes what ostree, systemd, skopeo and shells do, and GOGC how much memory a program takes.
umask 022
unset GOGC SOURCE_DATE_EPOCH POSIXLY_CORRECT REGISTRY_AUTH_FILE DOCKER_CONFIG KUBECONFIG LANGUAGE COLUMNS LINES NO_COLOR CDPATH
export LC_ALL=C.UTF-8 TZ=UTC TERM=dumb
exec "$@"
