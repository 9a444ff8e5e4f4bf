#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What is seen of a volume lies between what was there before and what was there after: see registers.c, compiled before the
# machine starts, and tests/registers.h.
#
#	make guest-programs
#	vm/run --disk 256M -- tests/vm/guest/registers.sh [SECONDS [FIRST_SEED]]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/registers}
MS=$((${1:-12} * 1000))
SEED=${2:-1}

# Deltas of a few milliseconds, unifies all the time; then as it is by default.
MOUNT_OPTIONS=age=0.02,dirty=256K
if fresh; then
	check "short deltas" "$PROGRAM" "$MNT" $MS $((SEED)) moves memory stores
	check "short deltas, without stores" "$PROGRAM" "$MNT" $MS $((SEED + 1)) moves memory
	check "pages that move" "$PROGRAM" "$MNT" $((MS / 2)) $((SEED + 5)) moves moved stores
	check "names" "$PROGRAM" "$MNT" $MS $((SEED + 4)) memory names
	checked_umount "clean after these"
fi
MOUNT_OPTIONS=
if fresh; then
	check "long deltas" "$PROGRAM" "$MNT" $MS $((SEED + 2)) moves memory stores
	checked_umount "clean after it"
fi
MOUNT_OPTIONS=age=0.02
if fresh -b 16384; then
	check "blocks of 16 KiB" "$PROGRAM" "$MNT" $MS $((SEED + 3)) memory stores
	checked_umount "clean after it, too"
fi
summary
