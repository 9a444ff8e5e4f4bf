#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A workload on a volume whose writes dm-log-writes records on /dev/vdb; log_writes.py replays them later.  In the machine:
#	vm/run --disk IMAGE --disk LOG -- tests/vm/guest/recorded.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
modprobe dm-log-writes
echo "0 $(blockdev --getsz /dev/vda) log-writes /dev/vda /dev/vdb" | dmsetup create recorded || exit 1
DEVICE=/dev/mapper/recorded
MOUNT_OPTIONS=age=0.2
mount_it || exit 1
mkdir "$MNT/sequence"
check "a sequence of operations" python3 tests/vm/sequence.py run "$MNT/sequence" --seed 7 --count 1500
check "a tree is copied" cp -r core "$MNT/core"
check "files with an fsync each" bash -c "for n in \$(seq 30); do dd if=/dev/urandom of=$MNT/f\$n bs=5000 count=3 conv=fsync; done"
check "the tree is removed" rm -r "$MNT/core"
check "truncates" bash -c "for n in \$(seq 30); do truncate -s \$((n * 400)) $MNT/f\$n; sync -f $MNT; done"
umount "$MNT" || failed umount "it is busy"
dmsetup remove recorded
summary
