#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Direct reads and writes: what they see, what they leave in the cache, and that nobody sees what is another file's.  See
# direct.c, which is compiled before the machine starts:
#
#	make guest-programs
#	vm/run --disk 256M -- tests/vm/guest/direct.sh [MILLISECONDS]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

PROGRAM=${PROGRAM:-build/tests/direct}
TIME=${1:-8000}

# One byte of block 20 of the file, wherever that is.
damage() {
	python3 - "$1" "$DEVICE" <<-'EOF'
		import sys
		block = int(sys.argv[1])
		with open(sys.argv[2], "r+b") as device:
		    text = b"block number 20 of the file, and nothing else"
		    found = device.read().index(text)
		    device.seek(found)
		    device.write(b"B")
	EOF
}

damaged_block() {	# BLOCK_SIZE
	python3 -c "
import sys
sys.stdout.write(''.join(f'block number {n} of the file, and nothing else'.ljust($1, '.') for n in range(300)))" >"$MNT/damaged" &&
		umount "$MNT" && damage "$1" && mount_it || return
	dmesg --clear
	$PROGRAM damaged "$MNT/damaged" 20 || return
	dmesg | grep -q "damaged.*checksum" || { echo "nobody is told of the checksum"; dmesg | tail; return 1; }
	rm "$MNT/damaged"
}

for size in 4096 65536; do
	if fresh --block-size $size; then
		check "rules, blocks of $size" $PROGRAM rules "$MNT"
		check "a damaged block, blocks of $size" damaged_block $size
		checked_umount "clean after the rules, blocks of $size"
	fi
done
if fresh -O ^data-csum; then
	check "rules, without checksums of data" $PROGRAM rules "$MNT"
	checked_umount "clean after the rules, without checksums of data"
fi
# Each commit frees blocks that the next ones take: the volume is small, and they are short.  Reads that wait for their cgroup's
# turn, while others write, are under way for many commits.
GROUP=/sys/fs/cgroup/reads
{ [ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup; } && echo "+io" >/sys/fs/cgroup/cgroup.subtree_control &&
	mkdir $GROUP || exit 2
if [ -e $GROUP/io.max ]; then
	echo "$(lsblk -ndo MAJ:MIN "$DEVICE" | tr -d ' ') rbps=3000000" >$GROUP/io.max || exit 2
elif [[ $(uname -r) = *-debug ]]; then
	echo "no races of slow reads: the debug kernel has no io.max"
	GROUP=
else
	exit 2
fi
MOUNT_OPTIONS=age=0.02
for options in "-s 24M" "-s 24M -O ^data-csum"; do
	if fresh $options; then
		check "races, $options" $PROGRAM race "$MNT" "$TIME"
		[ -z "$GROUP" ] || check "races of slow reads, $options" $PROGRAM race "$MNT" "$TIME" $GROUP
		checked_umount "clean after races, $options"
	fi
done
if [ -n "$GROUP" ] && MOUNT_OPTIONS= fresh -s 24M; then
	echo "$(lsblk -ndo MAJ:MIN "$DEVICE" | tr -d ' ') rbps=500000" >$GROUP/io.max || exit 2
	check "what is freed beside slow reads" $PROGRAM slow "$MNT" $GROUP
	checked_umount "clean after slow reads"
fi
summary
