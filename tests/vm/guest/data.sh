#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# File data: reading, writing, resizing, seeking, mapping; against models, other copies and the disk itself.
#
#	vm/run --disk 1G -- tests/vm/guest/data.sh [--quick]
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh
export DEVICE

DATA=tests/vm/guest/data.py
QUICK=
[ "${1:-}" = --quick ] && QUICK=1

remount() {
	umount "$MNT" && mount_it
}

single() {
	check "$1" python3 $DATA --check "$1" "$MNT"
}

# Sizes around those that matter, written by dd in pieces of various sizes.
dd_sizes() {
	local size piece
	mkdir -p "$MNT/dd" /tmp/dd
	for size in 0 1 511 512 513 4095 4096 4097 65536 100000 262144 300001 3000000; do
		for piece in 100 4096 65536 1048576; do
			[ $((size / piece)) -gt 3000 ] && continue
			head -c $size /dev/urandom >/tmp/dd/$size-$piece
			dd if=/tmp/dd/$size-$piece of="$MNT/dd/$size-$piece" bs=$piece status=none || return 1
		done
	done
	diff -r /tmp/dd "$MNT/dd" && remount && diff -r /tmp/dd "$MNT/dd"
}

tree_copy() {
	cp -a /usr/include "$MNT/tree" && diff -r --no-dereference /usr/include "$MNT/tree" || return 1
	remount && diff -r --no-dereference /usr/include "$MNT/tree" || return 1
	rm -r "$MNT/tree"
}

big_file() {
	head -c 200000000 /dev/urandom >/tmp/big && dd if=/tmp/big of="$MNT/big" bs=8k status=none || return 1
	cmp "$MNT/big" /tmp/big && remount && cmp "$MNT/big" /tmp/big || return 1
	filefrag "$MNT/big"
	rm "$MNT/big" /tmp/big
}

fio_verify() {
	command -v fio >/dev/null || return 0
	fio --name=verify --directory="$MNT" --size=24m --rw="$1" --bsrange="$2" --verify=crc32c --do_verify=1 \
		--verify_fatal=1 --ioengine="$3" --numjobs=2 --iodepth=4 --minimal "${@:4}" >/dev/null || return 1
	rm -f "$MNT"/verify.*
}

# Readers see old or new, and what is written is there, while commits go on.
while_syncing() {
	local stop=/tmp/stop status
	rm -f $stop
	(until [ -e $stop ]; do sync; done) &
	timeout 500 python3 $DATA "$MNT" 77 400
	status=$?
	touch $stop
	wait
	return $status
}

fresh || exit 2
check dd-sizes dd_sizes
for name in far seek seek-race seek-punched seek-steps truncate-steps setid fiemap first-store scattered-stores locked-stores \
	failed-memory failed-memory-cut neighbours modes on-demand direct pieces self damaged; do
	single $name
done
ahead() {
	local status
	mount -o remount,fsync=ahead "$MNT" && python3 $DATA --check "$1" "$MNT"
	status=$?
	mount -o remount,fsync=auto "$MNT"
	return $status
}
for name in slow-memory failed-memory-beside; do
	check $name ahead $name
done
check nowait python3 tests/vm/guest/data_rwf.py nowait "$MNT"
check dontcache python3 tests/vm/guest/data_rwf.py dontcache "$MNT"

# io_uring tries each write without waiting first: those that would have to wait go to a worker.  Prints how many of 256 did.
ring_punted() {
	local tracing=/sys/kernel/tracing
	local punted=$tracing/events/io_uring/io_uring_queue_async_work/enable
	[ -d $tracing/events ] || mount -t tracefs none $tracing || return 1
	echo >$tracing/trace
	echo 1 >$punted || return 1
	fio --name=ring --filename="$MNT/ring" --size=4m --rw=randwrite --bs=16k --ioengine=io_uring --iodepth=8 \
		--fallocate=none --overwrite=1 --minimal "$@" >/dev/null || return 1
	echo 0 >$punted
	grep -c io_uring_queue_async_work: $tracing/trace
}

# Those that are to be durable at once have to wait, all of them.
ring() {
	local plain durable
	command -v fio >/dev/null || return 0
	plain=$(ring_punted)
	durable=$(ring_punted --sync=1)
	rm "$MNT/ring"
	echo "by workers: $plain of 256 writes, $durable of 256 that are durable at once"
	[ "$plain" -lt 128 ] && [ "$durable" -ge 256 ]
}
check ring ring

# Damage that is none must not be told of.
no_messages() {
	! dmesg | grep "tux3.*checksum"
}

race_quietly() {
	dmesg --clear
	python3 $DATA --check race "$MNT" && no_messages
}

check race race_quietly
check tree-copy tree_copy
check big-file big_file
check model python3 $DATA "$MNT" 1 600 --remount
check while-syncing while_syncing
check fio-mmap fio_verify randwrite 4k-8k mmap
if [ -z "$QUICK" ]; then
	for seed in 2 3 4 5; do
		check model-$seed python3 $DATA "$MNT" $seed 1000 --remount
	done
	check fio-randwrite fio_verify randwrite 512-64k psync
	check fio-write fio_verify write 4k-256k psync
	check fio-direct fio_verify randwrite 4k-32k libaio --direct=1
	check fio-fsync fio_verify randwrite 4k-16k psync --fsync=16
fi
checked_umount fsck

if fresh -s 96M; then
	single full
	checked_umount full-fsck
fi

# The same without data checksums, and with larger blocks.
if fresh -O ^data-csum; then
	check no-csum-race race_quietly
	check no-csum-model python3 $DATA "$MNT" 6 400 --remount
	check no-csum-big big_file
	checked_umount no-csum-fsck
fi
if fresh --block-size 16384; then
	check 16k-model python3 $DATA "$MNT" 7 400 --remount
	check 16k-big big_file
	checked_umount 16k-fsck
fi
# A folio could be as large as what one entry maps.
if fresh --block-size 65536; then
	single huge
	checked_umount 64k-fsck
fi
summary
