#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A device reads into a mapped file (O_DIRECT), and a commit comes while it does: what it brings afterwards must become
# durable too, also when nobody has the file open any more.  In the machine:
#	vm/run --disk 256M --disk 64M -- tests/vm/guest/strays.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
SOURCE=/dev/vdb
BYTES=1048576
MIB=48			# of the volume

# The read begins while the source is suspended, and ends after a sync.  Then it may be synced itself.
begin_read() {
	dmsetup suspend --nolockfs source
	rm -f /tmp/read /tmp/synced
	python3 - "$@" <<-'END' &
		import mmap, os, sys
		size = int(sys.argv[2])
		source = os.open("/dev/mapper/source", os.O_RDONLY | os.O_DIRECT)
		with open(sys.argv[1], "w+b") as file:
		    file.truncate(size)
		    memory = mmap.mmap(file.fileno(), size)
		memory[:] = b"o" * size
		assert os.preadv(source, [memory], 0) == size
		open("/tmp/read", "w")
		if len(sys.argv) > 3:
		    memory.flush()
		    open("/tmp/synced", "w")
	END
	sleep 3
}

read_into() {
	begin_read "$1" $BYTES
	sync -f "$MNT"
	dmsetup resume source
	wait $!
}

on_disk() {
	dd if=$DEVICE bs=1M count=$MIB iflag=direct status=none | sha256sum
}

# What comes while the volume is frozen is not written before it is thawed; who wants it to be durable waits for that.
read_while_frozen() {
	local before status=0
	begin_read "$1" $BYTES msync
	fsfreeze -f "$MNT" || return 1
	before=$(on_disk)
	dmsetup resume source
	until [ -e /tmp/read ]; do sleep 0.1; done
	timeout 2 sync -f "$MNT"
	[ "$(on_disk)" = "$before" ] || { echo "the disk has changed"; status=1; }
	[ ! -e /tmp/synced ] || { echo "it was synced"; status=1; }
	fsfreeze -u "$MNT"
	wait $! && xfs_io -r -x -c shutdown "$MNT" && return $status
}

same() {
	cmp -n $BYTES "$SOURCE" "$1"
}

head -c $BYTES /dev/urandom >"$SOURCE"
modprobe dm-mod
echo "0 $(blockdev --getsz $SOURCE) linear $SOURCE 0" | dmsetup create source || { failed setup "dmsetup"; summary; }
fresh -s ${MIB}M || { failed fresh "no volume"; summary; }
check "a read that lasts longer than a commit" read_into "$MNT/umount"
checked_umount "unmounted at once"
check "mount" mount_it
check "what was read is there" same "$MNT/umount"
check "once more" read_into "$MNT/dropped"
check "the file is not known any more but for its pages" bash -c "echo 2 >/proc/sys/vm/drop_caches"
check "sync" sync -f "$MNT"
check "nothing of it is in memory" bash -c "echo 3 >/proc/sys/vm/drop_caches"
check "what was read is there then" same "$MNT/dropped"
checked_umount "unmounted"
check "mount again" mount_it
check "what was read is there, too" same "$MNT/dropped"
check "a read while the volume is frozen" read_while_frozen "$MNT/frozen"
check "a crash" umount "$MNT"
check "mount after it" mount_it
check "what was read and synced is there" same "$MNT/frozen"
checked_umount "clean"
dmsetup remove source
summary
