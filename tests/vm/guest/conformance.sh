#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/conformance.sh vm [SEED] runs this in the virtual machine.
cd "$(dirname "$0")/../../.." && . tests/vm/guest/conformance_lib.sh
volume() {
	build/mkfs.tux3 -q -f "$DEVICE" && MOUNT_OPTIONS=$1 mount_it
}
unmounted() {
	umount "$MNT" && build/fsck.tux3 -n "$DEVICE"
}
folder=$(mktemp -d) || exit 1
conformance "$folder" "$1" defaults age=0.05 fsync=full,age=0.3
