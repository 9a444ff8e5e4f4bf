#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A slow disk: an fsync beside a streaming writer waits for little; and one that stands still: who waits for it can be killed,
# the kernel does not take anybody for stuck, and names are found as they were made.  In the machine:
#	vm/run --disk 1G --throttle 20M -- tests/vm/guest/slow.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
DISK=$DEVICE
DEVICE=/dev/mapper/slow
HUNG=/proc/sys/kernel/hung_task_timeout_secs
HUNG_SECONDS=8
FIRST_MAX=$((96 << 20))	# bytes: two deltas of a second each, and as much again
ANSWER_MAX=$((16 << 20))	# the next ones: two of 20 ms (at least 512 KiB), and what a unify writes meanwhile

figure() {
	cat /sys/fs/tux3/dm-0/"$1"
}

# What the disk wrote while somebody waited for an fsync of 4 KiB: at most so many bytes in each of several.
fsyncs() {
	python3 - "$MNT/small" "$FIRST_MAX" "$ANSWER_MAX" <<-'END'
		import os, sys, time
		def written():
		    with open("/sys/fs/tux3/dm-0/device_write_bytes") as file:
		        return int(file.read())
		small = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
		for turn in range(6):
		    time.sleep(1)
		    before = written()
		    os.pwrite(small, b"x" * 4096, 0)
		    os.fsync(small)
		    bytes = written() - before
		    print(bytes)
		    assert bytes <= int(sys.argv[3 if turn else 2]), bytes
	END
}

limit_is_small() {
	figure device_bandwidth && figure delta_limit_bytes && [ "$(figure delta_limit_bytes)" -le $((48 << 20)) ]
}

# Files of 4 MiB, each fsynced before the next: flushes for each.
flushes_of_large() {
	python3 - "$MNT" <<-'END'
		import os, sys
		def flushes():
		    with open("/sys/fs/tux3/dm-0/device_flushes") as file:
		        return int(file.read())
		before = flushes()
		for n in range(6):
		    fd = os.open(f"{sys.argv[1]}/large{n}", os.O_CREAT | os.O_WRONLY)
		    for _ in range(64):
		        os.write(fd, b"x" * 65536)
		    os.fsync(fd)
		    os.close(fd)
		print((flushes() - before) / 6)
		assert flushes() - before <= 6 * 3
	END
}

# What the kernel says of a process: its state; nothing when it is over.  A dead one that the shell has not asked for yet is, too.
state() {
	cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null | grep -v Z
}

gone() {	# PID...: within a minute, which is long beside what a kill takes
	local n pid left
	for n in $(seq 600); do
		left=
		for pid in "$@"; do
			left+=$(state "$pid")
		done
		[ -n "$left" ] || return 0
		sleep 0.1
	done
	for pid in "$@"; do
		echo "$(cat "/proc/$pid/comm") $(state "$pid") $(cat "/proc/$pid/wchan")"
		cat "/proc/$pid/stack"
	done
	return 1
}

still_there() {
	local pid
	for pid in "$@"; do
		kill -0 "$pid" || return 1
	done
}

write_fsync() {	# FILE
	exec python3 -c "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR); os.pwrite(fd, b'x' * 4096, 0); os.fsync(fd)" "$1"
}

# More than a task may change at once in a full delta, of which next to nothing adds to that.
many_renames() {	# FILE OTHER LAST
	exec nice python3 - "$@" <<-'END'
		import os, sys
		old, other, last = sys.argv[1:]
		for _ in range(50):
		    os.rename(old, other)
		    os.rename(other, old)
		os.rename(old, last)
	END
}

many_truncates() {	# FILE
	exec python3 - "$1" <<-'END'
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
		for n in range(100):
		    os.ftruncate(fd, 4096 * n)
	END
}

# Much of it is cached, in folios of one block each.
make_cached() {
	python3 - "$MNT/cached" <<-'END'
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
		for block in reversed(range(4096)):
		    os.pwrite(fd, b"x" * 4096, block * 4096)
		os.fsync(fd)
	END
}

# Blocks of it are being committed, and others are dirty since: these are found without looking at all that is cached.
few_looks() {	# blocks being committed, blocks dirty since
	local front before after
	front=$(figure front_delta)
	write_blocks "$1"
	sync -f "$MNT" &
	syncer=$!
	for n in $(seq 600); do
		[ "$(figure front_delta)" -gt "$front" ] && break
		sleep 0.1
	done
	sleep 1
	write_blocks "$2"
	before=$(figure dirty_looks)
	python3 -c "import os, sys; os.lseek(os.open(sys.argv[1], os.O_RDONLY), 0, os.SEEK_HOLE)" "$MNT/cached"
	after=$(figure dirty_looks)
	looks=$((after - before))
}

write_blocks() {	# "blocks"
	python3 - "$MNT/cached" "$1" <<-'END'
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDWR)
		for block in sys.argv[2].split():
		    os.pwrite(fd, b"y" * 4096, int(block) * 4096)
	END
}

waited() {	# so often in all
	local n
	for n in $(seq 600); do
		[ "$(figure enter_waits)" -ge "$1" ] && return 0
		sleep 0.1
	done
	return 1
}

state_becomes() {	# PID STATE
	local n
	for n in $(seq 600); do
		[ "$(state "$1")" = "$2" ] && return 0
		sleep 0.1
	done
	return 1
}

# With -o sync, in a folder of its own each: what is done before the wait for the disk.  Who is nice leaves the commit to the
# thread: who makes it cannot be killed while the disk stands still.
change_name() {	# DO OLD [NEW]
	exec nice python3 - "$@" <<-'END'
		import ctypes, os, sys
		do, *paths = sys.argv[1:]
		if do == "exchange":
		    ctypes.CDLL(None).renameat2(-100, paths[0].encode(), -100, paths[1].encode(), 2)
		else:
		    getattr(os, do)(*paths)
	END
}

has() {	# FOLDER TEXT: the name "new" leads to a file with this text, and there is no "old"
	[ ! -e "$1/old" ] && [ "$(cat "$1/new")" = "$2" ]
}

changed_places() {	# FOLDER: the folder "old" and the file "new"
	[ "$(cat "$1/old")" = new ] && [ -d "$1/new" ] && touch "$1/new/in" && [ -e "$1/new/in" ]
}

nothing_made_in() {	# DESCRIPTOR of a folder that was removed
	! touch "/proc/self/fd/$1/in" 2>/dev/null
}

modprobe dm-mod
echo "0 $(blockdev --getsz "$DISK") linear $DISK 0" | dmsetup create slow || { failed setup "dmsetup"; summary; }
fresh || { failed fresh "no volume"; summary; }

# Each in a folder of its own: the VFS's lock of a folder cannot be waited for killably.
mkdir "$MNT/a" "$MNT/b" && touch "$MNT"/a/{old,small} "$MNT"/more{1,2,3} "$MNT"/ahead{0,1,2,3} && sync -f "$MNT"
# The first fsync asks for an area, the next commit makes it.
mount -o remount,fsync=ahead "$MNT"
(write_fsync "$MNT/ahead0") && sync -f "$MNT" && (write_fsync "$MNT/ahead0")
check "an fsync goes ahead" [ "$(figure fsyncs_ahead)" -gt 0 ]
[ -e $HUNG ] && echo $HUNG_SECONDS >$HUNG
dmsetup suspend --nolockfs --noflush slow
write_fsync "$MNT/ahead0" &
first=$!
check "who writes for all who fsync waits for the disk" state_becomes $first D
pids=()
for n in 1 2 3; do
	write_fsync "$MNT/ahead$n" &
	pids+=($!)
done
check "and others for him" state_becomes ${pids[2]} D
waits=$(figure enter_waits)
dd if=/dev/zero of="$MNT/stream" bs=1M count=600 conv=notrunc status=none 2>/dev/null &
pids+=($!)
check "a writer waits for the disk" waited $((waits + 1))
check "small changes do not" timeout 100 mv "$MNT/a/small" "$MNT/a/passed"
# Until they have used up what a full delta takes of them.
for n in 1 2 3; do
	dd if=/dev/zero of="$MNT/more$n" bs=64k count=100 conv=notrunc status=none 2>/dev/null &
	pids+=($!)
done
check "but many of them do" waited $((waits + 4))
many_renames "$MNT/a/old" "$MNT/a/moved" "$MNT/a/new" &
pids+=($!)
many_truncates "$MNT/b/other" &
pids+=($!)
python3 -c "import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDONLY))" "$MNT/stream" &
pids+=($!)
sleep $((2 * HUNG_SECONDS + 2))
check "so do others" still_there "${pids[@]}"
kill -9 "${pids[@]}"
check "all can be killed while it stands still" gone "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
check "what was not done is not" [ ! -e "$MNT/a/new" ]
dmsetup resume slow
wait $first
check "and who writes has written" [ $? = 0 ]
mount -o remount,fsync=auto "$MNT"
[ -e $HUNG ] && echo 120 >$HUNG

(while dd if=/dev/zero of="$MNT/stream" bs=1M count=500 conv=notrunc status=none; do :; done) &
writer=$!
check "fsync beside a streaming writer" fsyncs
check "a delta holds what the disk writes in a second" limit_is_small
kill -9 $writer $(pgrep -P $writer)
wait $writer

# What is kept small for those fsyncs is so for 2 s more.
sync -f "$MNT" && sleep 3
check "a large file alone is not written in small deltas" flushes_of_large

make_cached && sync -f "$MNT"
dmsetup suspend --nolockfs --noflush slow
few_looks 4000 ""
check "what is dirty is found at once ($looks looks)" [ "$looks" -lt 1000 ]
dmsetup resume slow
wait $syncer
dmsetup suspend --nolockfs --noflush slow
few_looks "$(seq 2000 2299)" "0 4095"
check "beside a commit of much of it, too ($looks looks)" [ "$looks" -lt 1000 ]
dmsetup resume slow
wait $syncer

names=$MNT/names
mkdir -p "$names"/{rename,over,unlink,rmdir/old,overdir/{old,new},exchange/old}
for n in rename over unlink; do
	echo old >"$names/$n/old"
done
echo new | tee "$names/over/new" >"$names/exchange/new"
sync -f "$MNT"
mount -o remount,sync,fsync=full "$MNT"
check "a name is absent" [ ! -e "$names/rename/new" ]
exec 8<"$names/rmdir/old" 9<"$names/overdir/new"
dmsetup suspend --nolockfs --noflush slow
pids=()
for n in "rename $names/rename/old $names/rename/new" "rename $names/over/old $names/over/new" "unlink $names/unlink/old" \
	 "rmdir $names/rmdir/old" "rename $names/overdir/old $names/overdir/new" "exchange $names/exchange/old $names/exchange/new"; do
	change_name $n &
	pids+=($!)
	check "who waits with -o sync: ${n%% *}" state_becomes $! D
done
kill -9 "${pids[@]}"
check "they can be killed" gone "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
dmsetup resume slow
check "renamed all the same" has "$names/rename" old
check "renamed over another" has "$names/over" old
check "unlinked" [ ! -e "$names/unlink/old" ]
check "a folder removed" [ ! -e "$names/rmdir/old" ]
check "in which nothing is made" nothing_made_in 8
check "a folder renamed over another" [ -d "$names/overdir/new" -a ! -e "$names/overdir/old" ]
check "in which nothing is made" nothing_made_in 9
check "exchanged" changed_places "$names/exchange"
exec 8<&- 9<&-
checked_umount "clean"
dmsetup remove slow
summary
