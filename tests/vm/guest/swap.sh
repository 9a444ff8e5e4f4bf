#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Swap files: what is refused, that memory comes back as it was while files are written, synced, frozen, and that neither the
# file nor the volume is the worse for it.
#
#	vm/run --disk 256M -- tests/vm/guest/swap.sh
cd "$(dirname "$0")/../../.." || exit 2
. tests/vm/guest/lib.sh

GROUPS_AT=/sys/fs/cgroup
CONTAINER=$GROUPS_AT/swapping
SWAP=$MNT/swapfile
LIMIT=24		# MiB of memory
USED=44			# of which this much is asked

[ -e $GROUPS_AT/cgroup.controllers ] || mount -t cgroup2 none $GROUPS_AT || exit 2
echo "+memory" >$GROUPS_AT/cgroup.subtree_control || exit 2

# More memory than the container may have, with something in each page, twice changed and read; other files are written and
# synced by others meanwhile.
use_memory() {
	mkdir -p $CONTAINER
	echo ${LIMIT}M >$CONTAINER/memory.max
	local status
	(
		echo $BASHPID >$CONTAINER/cgroup.procs
		exec python3 - $USED <<-'END'
			import mmap, sys
			size = int(sys.argv[1]) << 20
			memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
			memory.madvise(mmap.MADV_NOHUGEPAGE)
			for turn in range(2):
			    for at in range(0, size, 4096):
			        if turn:
			            assert memory[at + 8:at + 24] == (at * 3 + turn - 1).to_bytes(16, "little"), (turn, at)
			        memory[at + 8:at + 24] = (at * 3 + turn).to_bytes(16, "little")
		END
	)
	status=$?
	awk '$1 == "swap_out" || $1 == "pswpout"' $CONTAINER/memory.stat
	rmdir $CONTAINER
	return $status
}

others() {
	while [ ! -e /tmp/stop ]; do
		cp -r core "$MNT/others" && sync -f "$MNT" && rm -r "$MNT/others"
	done
}

extents() {	# of the swap file: where they are, and how many
	filefrag -v "$SWAP" | awk '$1 ~ /^[0-9]+:$/ { print $2, $3, $4, $5, $6 }'
}

swapped_out() {
	awk '$1 == "pswpout" { print $2 }' /proc/vmstat
}

store_to_mapping() {	# a mapping that was there before swapon: a store must not move the block
	python3 - "$SWAP" <<-'END'
		import mmap, os, signal, subprocess, sys
		file = open(sys.argv[1], "r+b")
		memory = mmap.mmap(file.fileno(), 1 << 20)
		subprocess.run(["swapon", sys.argv[1]], check=True)
		child = os.fork()
		if not child:
		    memory[70000] = 1
		    os._exit(0)
		assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGBUS
		subprocess.run(["swapoff", sys.argv[1]], check=True)
		memory[70000] = 1
	END
}

# swapon(8) looks for holes itself.
swapon_bare() {
	python3 -c "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)
libc.swapon(b'$SWAP', 0) and exit(os.strerror(ctypes.get_errno()))"
}

# A header that only a mapping has, beyond the end of a file that is shorter than a page: there is nowhere to swap to.
header_beyond_the_end() {
	python3 - "$MNT/tiny" <<-'END'
		import ctypes, os, struct, sys
		libc = ctypes.CDLL(None, use_errno=True)
		libc.mmap.restype = ctypes.c_void_p
		file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
		os.write(file, b"short")
		memory = libc.mmap(None, ctypes.c_size_t(4096), 3, 1, file, ctypes.c_long(0))	# read and write, shared
		ctypes.memmove(memory + 1024, struct.pack("<III", 1, 16383, 0), 12)	# version, last page, bad pages
		ctypes.memmove(memory + 4086, b"SWAPSPACE2", 10)
		libc.swapon(sys.argv[1].encode(), 0) and exit(os.strerror(ctypes.get_errno()))
		libc.swapoff(sys.argv[1].encode())
	END
}

refusals() {
	refused "a header beyond the end" "shorter than its swap header says" header_beyond_the_end
	rm -f "$MNT/tiny"
	truncate -s 64M "$SWAP"
	mkswap "$SWAP" >/dev/null 2>&1
	chmod 600 "$SWAP"
	refused "a file with holes" "cannot be used for swap: it has no block of its own" swapon_bare
	check "it is not immutable then" dd if=/dev/zero of="$SWAP" bs=4k seek=3 count=1 conv=notrunc status=none
	fallocate -l 64M "$SWAP"
	check "without holes it is taken" swapon "$SWAP"
	refused "writing" "Text file busy" dd if=/dev/zero of="$SWAP" bs=4k count=1 conv=notrunc
	refused "making it shorter" "Text file busy" truncate -s 1M "$SWAP"
	refused "making it longer" "Text file busy" truncate -s 100000001 "$SWAP"
	refused "punching" "Text file busy" fallocate -p -l 1M "$SWAP"
	refused "removing" "not permitted" rm -f "$SWAP"
	refused "replacing" "not permitted" mv -f "$MNT/other" "$SWAP"
	refused "unmounting" "busy" umount "$MNT"
	check "swapoff" swapoff "$SWAP"
	refused "not while the volume is frozen" "busy" bash -c "fsfreeze -f $MNT; swapon $SWAP; status=\$?; fsfreeze -u $MNT; exit \$status"
	check "a mapping from before" store_to_mapping
}

works() {	# KIND: how the file was made
	local before out
	check "$1: swapon" swapon "$SWAP"
	before=$(extents)
	out=$(swapped_out)
	rm -f /tmp/stop
	others &
	check "$1: memory is what it was" use_memory
	touch /tmp/stop
	wait
	check "$1: something was swapped" [ "$(swapped_out)" -gt "$((out + 1000))" ]
	check "$1: no block was moved" [ "$(extents)" = "$before" ]
	sync -f "$MNT"
	fsfreeze -f "$MNT"
	check "$1: while the volume is frozen" use_memory
	dd if="$DEVICE" of=/tmp/frozen.img bs=1M iflag=direct conv=sparse status=none
	fsfreeze -u "$MNT"
	check "$1: the disk is clean while it is on" build/fsck.tux3 -n --data /tmp/frozen.img
	rm /tmp/frozen.img
	check "$1: swapoff" swapoff "$SWAP"
	check "$1: on again, with the header from before" swapon "$SWAP"
	check "$1: off again" swapoff "$SWAP"
	check "$1: it can be read" cmp -n 64M "$SWAP" "$SWAP"
	umount "$MNT" && mount_it
	check "$1: also after a mount" bash -c "cat $SWAP >/dev/null"
	check "$1: and swapped to" swapon "$SWAP"
	check "$1: off at last" swapoff "$SWAP"
	checked_umount "$1: clean"
	mount_it
}

dmesg -n 1
fresh -s 200M || exit 1
touch "$MNT/other"
refusals
works preallocated
rm "$SWAP"
dd if=/dev/zero of="$SWAP" bs=1M count=64 status=none
mkswap "$SWAP" >/dev/null 2>&1
works written
check "it is a file like any other" dd if=/dev/urandom of="$SWAP" bs=1M count=10 conv=notrunc,fsync status=none
check "and can be removed" rm "$SWAP"
checked_umount "clean in the end"
if fresh -s 200M --block-size 16384; then
	fallocate -l 64M "$SWAP"
	mkswap "$SWAP" >/dev/null 2>&1
	if [ "$(uname -r | cut -d. -f1)" -lt 7 ]; then
		check "16K blocks: swapon" swapon "$SWAP"
		check "16K blocks: memory is what it was" use_memory
		check "16K blocks: swapoff" swapoff "$SWAP"
	else	# such kernels refuse blocks larger than a page themselves, before they ask: no message of ours
		refused "16K blocks: swapon" "Invalid argument" swapon_bare
		check "16K blocks: it is a file like any other" dd if=/dev/zero of="$SWAP" bs=1M count=1 conv=notrunc,fsync status=none
		check "16K blocks: and can be removed" rm "$SWAP"
	fi
	checked_umount "16K blocks: clean"
fi
summary
