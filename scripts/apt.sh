#!/bin/sh
# Installs Debian packages without asking, for set-up on a machine where we are root.
#   scripts/apt.sh package...
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get install --yes --quiet --no-install-recommends "$@" >/dev/null 2>&1 && exit 0
# A fresh machine has no package lists yet.
apt-get update --quiet >/dev/null 2>&1
apt-get install --yes --quiet --no-install-recommends "$@" >/dev/null
