#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Races of races.c, which is compiled before the machine starts:
#
#	make guest-programs
#	vm/run --disk 256M --disk 64M -- tests/vm/guest/races.sh [SECONDS]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/races}
SOURCE=/dev/vdb
SECONDS_EACH=${1:-10}

# The flusher looks at everything, always.
echo 1 >/proc/sys/vm/dirty_writeback_centisecs
echo 1 >/proc/sys/vm/dirty_expire_centisecs

no_complaint() {
	! dmesg | grep -E "WARNING|BUG:|kernel BUG|Oops"
}

dmesg --clear
MOUNT_OPTIONS=age=0.02,dirty=1M
fresh || exit 1
check "pages of dying inodes are dirtied by a device" "$PROGRAM" dying "$MNT" $SOURCE "$SECONDS_EACH"
checked_umount "clean after it"
MOUNT_OPTIONS=
fresh || exit 1
check "stores beside punches" "$PROGRAM" punch "$MNT" "$SECONDS_EACH"
checked_umount "clean after that"
check "the kernel has nothing to say" no_complaint
summary
