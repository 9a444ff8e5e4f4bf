#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Stores through a mapping that an fsync of another file leaves to the next delta: what is written for it, and that they are there
# after a crash when somebody has waited for them.  In the machine:
#	vm/run --disk 256M -- tests/vm/guest/put_off.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh

# $1: what is done between the stores and the fsyncs of the log, and $2 between these and the crash
stores() {
	python3 - "$MNT" "$1" "$2" <<-'END'
		import mmap, os, sys, time
		folder, between, then = sys.argv[1:]
		counter = lambda name: int(open(f"/sys/fs/tux3/{os.environ['NAME']}/{name}").read())
		file = open(f"{folder}/memory", "w+b")
		file.write(bytes(32768))
		os.fsync(file.fileno())
		log = open(f"{folder}/log", "wb", buffering=0)
		memory = mmap.mmap(file.fileno(), 32768)
		for at in range(0, 32768, 4096):
		    memory[at:at + 5] = b"first"
		exec(between)
		names = ("inodes_put_off", "inodes_committed", "data_blocks")
		before = [counter(name) for name in names]
		for number in range(20):
		    log.write(bytes(4096))
		    memory[4096 * (number % 8) + 100] = number
		    os.fsync(log.fileno())
		put_off, inodes, blocks = (counter(name) - start for name, start in zip(names, before))
		print(f"{put_off} times put off, {inodes} inodes and {blocks} blocks committed")
		if not between:
		    assert put_off >= 15 and inodes <= 30 and blocks <= 60
		exec(then)
	END
}

# $1: bytes that are in the file, $2: how often
there() {
	[ "$(grep -ao "$1" "$MNT/memory" | wc -l)" = "$2" ]
}

crash() {
	xfs_io -r -x -c shutdown "$MNT" && umount "$MNT" && mount_it
}

# $1: name, $2, $3: as for stores; then what is to be there
durable() {
	check "$1" stores "$2" "$3"
	check "$1: a crash" crash
	check "$1: is there" there "$4" "$5"
	check "$1: and the log" test "$(stat -c %s "$MNT/log")" = 81920
}

export NAME=${DEVICE##*/}
MOUNT_OPTIONS=age=60
fresh || { failed fresh "no volume"; summary; }
durable "nobody waits" "" "" first 0
durable "msync" "" "memory.flush()" first 8
durable "fsync" "" "os.fsync(file.fileno())" first 8
durable "fsync, then stores again" "" "os.fsync(file.fileno()); memory[0:5] = b'again'; log.write(b''); os.fsync(log.fileno())" first 8
durable "sync" "" "os.sync()" first 8
durable "written to before" "os.pwrite(file.fileno(), b'later', 200)" "" later 1
durable "written to afterwards" "" "os.pwrite(file.fileno(), b'later', 200); os.utime(log.fileno()); os.fsync(log.fileno())" first 8
durable "cut off afterwards" "" "os.truncate(file.fileno(), 4096); os.utime(log.fileno()); os.fsync(log.fileno())" first 1
durable "renamed, and back" "" "os.rename(file.name, file.name + '2'); os.rename(file.name + '2', file.name); os.utime(log.fileno()); os.fsync(log.fileno())" first 8
check "unmapped" stores "" "memory.close(); file.close()"
checked_umount "unmounted"
check "mount" mount_it
check "it is there" there first 8
check "removed while mapped" stores "" "os.unlink(file.name); log.write(bytes(1)); os.fsync(log.fileno())"
checked_umount "unmounted, without it"
MOUNT_OPTIONS=age=1
check "mount, with little age" mount_it
durable "its age has come" "" "time.sleep(3)" first 8
MOUNT_OPTIONS=fsync=full
umount "$MNT" && check "mount, fsync=full" mount_it
durable "in order" "memory[0:5] = b'later'" "" later 1
checked_umount "unmounted at last"
summary
