#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The disk goes away under a mounted volume (dm-flakey; then from its bus, of which the kernel tells the volume): everybody who
# waits gets EIO, the volume can be unmounted, and what was synced before is there when the disk is back.  In the machine:
#	vm/run --disk 512M -- tests/vm/guest/pulled.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
DISK=$DEVICE
SECTORS=$(blockdev --getsz "$DISK")
DEVICE=/dev/mapper/pulled

table() {	# up | down
	case $1 in
	up) echo "0 $SECTORS linear $DISK 0" ;;
	errors) echo "0 $SECTORS flakey $DISK 0 0 1 1 error_writes" ;;
	gone) echo "0 $SECTORS error" ;;
	esac
}

become() {	# without flushing or freezing the filesystem: the disk does not ask
	dmsetup suspend --nolockfs --noflush pulled && table "$1" | dmsetup reload pulled && dmsetup resume pulled
}

modprobe dm-flakey
table up | dmsetup create pulled || { failed setup "dmsetup"; summary; }

expect_fsync() {	# NAME FD ok|MESSAGE: of this open file
	local got
	got=$(timeout 60 python3 -c 'import os, sys
try:
	os.fsync(int(sys.argv[1]))
	print("ok")
except OSError as error:
	print(error.strerror)' "$2")
	[ "$got" = "$3" ] && ok "$how: $1" || failed "$how: $1" "'$got' instead of '$3'"
}

# Each file that was open hears once of what was lost; then, and whoever opens it later, that nothing is written any more.
several_files() {
	local fd
	expect_fsync "the one who wrote gets EIO" 5 "Input/output error"
	for fd in 6 7 8; do expect_fsync "another ($fd) gets EIO" $fd "Input/output error"; done
	for fd in 5 6 7 8; do expect_fsync "once ($fd)" $fd "Read-only file system"; done
	exec 4<"$MNT/several"
	expect_fsync "one opened later does not get EIO" 4 "Read-only file system"
	expect_fsync "nothing was lost of another file" 9 ok
	timeout 60 sync -f "$MNT" 2>/tmp/error && failed "$how: syncfs" "it says that all is well" ||
		check "$how: syncfs gets EIO" grep -q "Input/output error" /tmp/error
	exec 4<&- 5>&- 6<&- 7<&- 8<&- 9<&-
}

MOUNT_OPTIONS=age=600
for how in errors gone; do
	become up
	fresh || { failed fresh "no volume"; summary; }
	mkdir "$MNT/safe" && cp -r core "$MNT/safe/"
	head -c 8192 /dev/urandom | tee "$MNT/cut" >"$MNT/removed"
	cp "$MNT/cut" /tmp/cut && echo text >"$MNT/several" && sync
	exec 5<>"$MNT/several" 6<"$MNT/several" 7<"$MNT/several" 8<"$MNT/safe" 9<"$MNT/safe/core/volume.c"
	# From here on there is something to commit, so that the volume does not write by itself before we ask.
	echo lost >&5
	become $how
	# A commit that somebody had asked for before may have had that with it.
	echo lost >&5 2>/dev/null
	mkdir "$MNT/safe/lost"
	echo lost >"$MNT/lost"
	truncate -s 0 "$MNT/cut" && truncate -s 8192 "$MNT/cut" && rm "$MNT/removed"
	timeout 60 sync "$MNT/lost" 2>/tmp/error && failed "$how: fsync" "it says that all is well" ||
		check "$how: fsync gets EIO" grep -q "Input/output error" /tmp/error
	several_files
	# Several who wait at a time.
	for n in 1 2 3 4; do
		(timeout 60 dd if=/dev/zero of="$MNT/wait$n" bs=64k count=100 conv=fsync 2>/tmp/wait$n; echo $? >/tmp/status$n) &
	done
	wait
	for n in 1 2 3 4; do
		status=$(cat /tmp/status$n)
		[ "$status" != 0 ] && [ "$status" != 124 ] && ok "$how: waiter $n hears of it" ||
			failed "$how: waiter $n" "status $status: $(cat /tmp/wait$n)"
	done
	check "$how: what is cached can be read" cat "$MNT/safe/core/volume.c"
	timeout 60 touch "$MNT/more" 2>/tmp/error && failed "$how: changes" "they are still accepted" || ok "$how: changes are refused"
	# What could not be committed covers what is on the disk, for as long as the volume is mounted.
	check "$how: what was cut off reads as zeros" cmp -n 8192 "$MNT/cut" /dev/zero
	check "$how: what was written is there" grep -qx lost "$MNT/lost"
	[ -e "$MNT/removed" ] && failed "$how: what was removed" "it is back" || ok "$how: what was removed is gone"
	check "$how: it can be unmounted" timeout 60 umount "$MNT"
	become up
	check "$how: the disk is back: it mounts" mount_it
	check "$how: what was synced is there" diff -r core "$MNT/safe/core"
	check "$how: and what had been cut off" cmp /tmp/cut "$MNT/cut"
	check "$how: and what had been removed" cmp /tmp/cut "$MNT/removed"
	[ -e "$MNT/lost" ] && failed "$how: what failed" "it is there all the same" || ok "$how: what failed is not there"
	checked_umount "$how: clean"
done
dmsetup remove pulled

write_and_read() {	# until it fails
	while echo text >>"$1" && cmp -s core/volume.c "$MNT/safe/core/volume.c" && sync "$1"; do :; done 2>/dev/null
	return 0
}
export -f write_and_read
export MNT

# Beside those who write, read and sync.
from_the_bus() {
	local slot n pids=()
	slot=$(readlink -f "/sys/block/${DISK##*/}/device/..")
	DEVICE=$DISK
	MOUNT_OPTIONS=age=0.1
	fresh || { failed "from the bus" "no volume"; return; }
	mkdir "$MNT/safe" && cp -r core "$MNT/safe/" && sync
	# The kernel drops what nobody has open: so it is.
	exec 5<"$MNT/safe/core/volume.c" && cmp core/volume.c /dev/fd/5
	for n in 1 2 3 4; do
		timeout 60 bash -c "write_and_read $MNT/file$n" &
		pids+=($!)
	done
	sleep 1
	check "from the bus: it is removed" test -e "$slot/remove" -a -w "$slot/remove"
	echo 1 >"$slot/remove"
	for n in "${pids[@]}"; do
		wait "$n" && ok "from the bus: who works on it hears of it" || failed "from the bus: who works on it" "exit status $?"
	done
	check "from the bus: the volume was told" bash -c "dmesg | grep -q 'the device is gone'"
	timeout 60 touch "$MNT/more" 2>/tmp/error && failed "from the bus: changes" "they are still accepted" ||
		check "from the bus: changes are refused" grep -q "Read-only file system" /tmp/error
	check "from the bus: what is cached can be read" cmp core/volume.c /dev/fd/5
	exec 5<&-
	check "from the bus: it can be unmounted" timeout 60 umount "$MNT"
	echo 1 >/sys/bus/pci/rescan
	for ((n = 0; n < 100; n++)); do [ -b "$DISK" ] && break; sleep 0.1; done
	check "from the bus: the disk is back: it mounts" mount_it
	check "from the bus: what was synced is there" diff -r core "$MNT/safe/core"
	check "from the bus: what was written, too" grep -qx text "$MNT/file1"
	checked_umount "from the bus: clean"
}
from_the_bus
summary
