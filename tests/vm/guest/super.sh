#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Mounts from beginning to end: options, remount, freeze, shutdown, numbers in /sys, attributes, handles, parents, bulkstat,
# unloading.  In the machine:
#	vm/run --disk 512M -- tests/vm/guest/super.sh [NAME of a group ...]
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
SYS=/sys/fs/tux3/${DEVICE##*/}

options() {	# as /proc/mounts shows them
	awk -v mnt="$MNT" '$2 == mnt { print $4 }' /proc/mounts
}

equal() {	# NAME GOT EXPECTED
	[ "$2" = "$3" ] && ok "$1" || failed "$1" "'$2' instead of '$3'"
}

copy_device() {	# what is on the disk, not in its page cache
	dd if="$DEVICE" of=/tmp/frozen.img bs=1M iflag=direct conv=sparse status=none
}

# ---- groups ----

group_mount() {
	fresh --label "a label" || { failed mount "no volume"; return; }
	equal "default options" "$(options)" "rw,relatime"
	equal "type" "$(stat -f -c %t "$MNT")" 54555833
	equal "statfs: size" $(($(stat -f -c '%b * %s' "$MNT"))) "$(blockdev --getsize64 "$DEVICE")"
	equal "block size" "$(stat -f -c %S "$MNT")" 4096
	mkdir -p /tmp/second
	check "the same device mounted twice" mount -t tux3 "$DEVICE" /tmp/second
	echo text >"$MNT/file"
	equal "is one filesystem" "$(cat /tmp/second/file)" text
	umount /tmp/second
	refused "tux3-fuse does not write it too" "in use" build/tux3-fuse "$DEVICE" /tmp/second
	refused "nor does mkfs" "in use" build/mkfs.tux3 --force "$DEVICE"
	equal "label" "$(python3 - "$MNT" <<-END
		import fcntl, os, sys
		print(fcntl.ioctl(os.open(sys.argv[1], 0), 0x81009431, bytes(256)).rstrip(b"\0").decode())
	END
	)" "a label"
	checked_umount "umount"
	check "a device that cannot be written" blockdev --setro "$DEVICE"
	check "is mounted read-only" mount_it
	check "says so" grep -q "^ro" <(options)
	refused "and stays so" "write-protected" mount -o remount,rw "$MNT"
	equal "its files" "$(cat "$MNT/file")" text
	check "is unmounted" umount "$MNT"
	blockdev --setrw "$DEVICE"
	dd if=/dev/zero of="$DEVICE" bs=1M count=4 conv=fsync status=none
	dd if=/dev/zero of="$DEVICE" bs=1M seek=508 conv=fsync status=none 2>/dev/null
	refused "a device without a volume" "no Tux3 volume" mount -t tux3 "$DEVICE" "$MNT"
	build/mkfs.tux3 --quiet "$DEVICE"
	dd if=/dev/urandom of="$DEVICE" bs=4k seek=50 count=100 conv=fsync status=none	# behind anchor and free map
	refused "a volume whose tree is damaged" "cannot be" mount -t tux3 "$DEVICE" "$MNT"
	refused "the same read-only" "cannot be" mount -t tux3 -o ro "$DEVICE" "$MNT"
	for size in 8192 65536; do
		check "blocks of $size bytes" fresh --block-size $size
		cp -r core "$MNT/"
		equal "$size: statfs" "$(stat -f -c %S "$MNT")" $size
		check "$size: umount" umount "$MNT"
		check "$size: mount" mount_it
		check "$size: files" diff -r core "$MNT/core"
		checked_umount "$size: umount again"
	done
}

# What is on the device, to be compared with cmp: a checksum, and what goes through a pipe, takes this machine long.
device_copy() {
	dd if="$DEVICE" of="$1" bs=1M iflag=direct conv=sparse status=none
}

device_is_as() {
	device_copy /tmp/device-now && cmp "$1" /tmp/device-now && rm /tmp/device-now
}

# A volume with a log, as after a crash, on a device that cannot be written.
group_readonly() {
	local says=/tmp/says
	fresh || { failed readonly "no volume"; return; }
	cp -r core "$MNT/"
	sync -f "$MNT"
	echo one >"$MNT/one"
	exec 5>"$MNT/held"
	echo two >"$MNT/two"
	rm "$MNT/held"
	check "readonly: a crash" xfs_io -r -x -c "shutdown -f" "$MNT"
	exec 5>&-
	umount "$MNT"
	blockdev --setro "$DEVICE"
	device_copy /tmp/device
	dmesg --clear
	mount -v -t tux3 "$DEVICE" "$MNT" >$says 2>&1 || failed "readonly: mount" "$(cat $says)"
	check "readonly: mount says that it is" grep -q "WARNING: source write-protected, mounted read-only" $says
	check "readonly: it is" grep -q "^ro" <(options)
	check "readonly: the log was replayed in memory" eval "dmesg | grep -q 'log was replayed, in memory only'"
	equal "readonly: what was committed" "$(cat "$MNT/one" "$MNT/two")" "$(printf 'one\ntwo')"
	check "readonly: all files" diff -r core "$MNT/core"
	refused "readonly: no change" "Read-only file system" touch "$MNT/new"
	refused "readonly: not made writable" "write-protected" mount -o remount,rw "$MNT"
	check "readonly: still there" cat "$MNT/one"
	check "readonly: sync" sync -f "$MNT"
	check "readonly: umount" umount "$MNT"
	check "readonly: nothing was written" device_is_as /tmp/device
	check "readonly: mount with ro" mount -o ro -t tux3 "$DEVICE" "$MNT"
	check "readonly: ro to ro" mount -o remount,ro "$MNT"
	umount "$MNT"
	check "readonly: norecovery" mount -o ro,norecovery -t tux3 "$DEVICE" "$MNT"
	umount "$MNT"
	check "readonly: nothing was written again" device_is_as /tmp/device
	rm /tmp/device
	# The device can be written after all, while it is mounted.
	check "readonly: mount once more" mount -o ro -t tux3 "$DEVICE" "$MNT"
	cat "$MNT/core/tree/tree.c" >/dev/null
	blockdev --setrw "$DEVICE"
	check "readonly: made writable" mount -o remount,rw "$MNT"
	check "readonly: written" bash -c "echo three >$MNT/three && rm $MNT/one && sync -f $MNT"
	check "readonly: the log goes on" [ "$(cat $SYS/log_length)" -gt 0 ]
	check "readonly: a crash again" xfs_io -r -x -c shutdown "$MNT"
	umount "$MNT"
	check "readonly: and a mount" mount_it
	equal "readonly: all is there" "$(cd "$MNT" && cat two three && ls | tr '\n' ' ')" "$(printf 'two\nthree\ncore three two ')"
	check "readonly: a thread commits" bash -c "mount -o remount,age=0.1 $MNT && echo four >$MNT/four"
	for _ in $(seq 600); do [ "$(cat $SYS/dirty_changes)" = 0 ] && break; sleep 0.1; done
	equal "readonly: committed" "$(cat $SYS/dirty_changes)" 0
	checked_umount "readonly: clean"
}

# As by the key for emergencies: files without a name are open then, and may be closed before the volume is writable again.
group_forced() {
	local free n
	fresh || { failed forced "no volume"; return; }
	free=$(stat -f -c %f "$MNT")
	dd if=/dev/zero of="$MNT/held" bs=1M count=20 status=none
	exec 5<"$MNT/held"
	rm "$MNT/held"
	sync -f "$MNT"
	echo u >/proc/sysrq-trigger
	for ((n = 0; n < 600; n++)); do
		grep -q "^ro" <(options) && break
		sleep 0.1
	done
	check "forced: read-only" grep -q "^ro" <(options)
	refused "forced: not writable with a file without a name open" "still open" mount -o remount,rw "$MNT"
	exec 5<&-
	check "forced: writable again" mount -o remount,rw "$MNT"
	for ((n = 0; n < 60; n++)); do
		sync -f "$MNT"
		[ "$(stat -f -c %f "$MNT")" -gt $((free - 1000)) ] && break
		sleep 0.1
	done
	check "forced: what was closed meanwhile is deleted" [ "$(stat -f -c %f "$MNT")" -gt $((free - 1000)) ]
	checked_umount "forced: clean"
}

# The same beside tasks that go on writing, on a disk that takes its time: no moment comes at which nothing is changed.
group_forced_beside() {
	local n writers=() deltas DEVICE=$DEVICE disk=$DEVICE SYS
	modprobe dm-delay
	echo "0 $(blockdev --getsz $disk) delay $disk 0 0 $disk 0 20" | dmsetup create delayed || { failed "forced beside" "dmsetup"; return; }
	DEVICE=/dev/dm-$(dmsetup info -c --noheadings -o minor delayed)
	SYS=/sys/fs/tux3/${DEVICE##*/}
	MOUNT_OPTIONS=age=600
	fresh || { failed "forced beside" "no volume"; dmsetup remove delayed; return; }
	rm -f /tmp/stop
	for n in 1 2; do
		python3 -c '
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
	while not os.path.exists("/tmp/stop"):
		for i in range(1000):
			os.pwrite(fd, b"text", i % 16 * 4096)
except OSError as e:
	sys.exit(e.errno != 30)
' "$MNT/file$n" &
		writers+=($!)
	done
	until [ -s "$MNT/file1" ] && [ -s "$MNT/file2" ]; do sleep 0.1; done
	deltas=$(cat $SYS/deltas)
	echo u >/proc/sysrq-trigger
	for ((n = 0; n < 300; n++)); do
		grep -q "^ro" <(options) && break
		sleep 0.1
	done
	check "forced beside writers: read-only" grep -q "^ro" <(options)
	deltas=$(($(cat $SYS/deltas) - ${deltas:?}))
	check "forced beside writers: with a few commits ($deltas)" test $deltas -le 8
	touch /tmp/stop
	for n in "${writers[@]}"; do
		wait "$n"
		equal "forced beside writers: who writes is told" $? 0
	done
	rm -f /tmp/stop
	check "forced beside writers: writable again" mount -o remount,rw "$MNT"
	checked_umount "forced beside writers: clean"
	dmsetup remove delayed
	MOUNT_OPTIONS=
}

group_options() {
	local bad
	MOUNT_OPTIONS=age=0.25,dirty=16M,cache=1536K,names=5000,noacl,discard,user_xattr,errors=remount-ro
	check "all options" fresh
	equal "are shown" "$(options)" "rw,relatime,age=0.25,dirty=16M,cache=1536K,names=5000,discard,noacl"
	check "remount" mount -o remount,age=2,nodiscard,acl "$MNT"
	equal "changes what it says" "$(options)" "rw,relatime,age=2,dirty=16M,cache=1536K,names=5000"
	checked_umount "umount with options"
	MOUNT_OPTIONS=costs
	check "costs" mount_it
	equal "costs: is shown" "$(options)" "rw,relatime,costs"
	check "costs: files" bash -c "cp -r /etc $MNT/etc && sync && rm -r $MNT/etc && sync -f $MNT"
	equal "costs: nothing took more than it was charged" "$(cat "$SYS/overdrafts")" 0
	check "costs: remount" mount -o remount,age=3 "$MNT"
	checked_umount "umount with costs"
	MOUNT_OPTIONS=age=3
	check "without costs" mount_it
	refused "costs: not by a remount" "cannot be changed by a remount" mount -o remount,costs "$MNT"
	checked_umount "umount without costs"
	for bad in age=0 age=5000 age=x age=1.5s dirty=0 dirty=64X cache=-1 names=many names=0; do
		MOUNT_OPTIONS=$bad
		refused "$bad" "is not a value it can take" mount_it
	done
	MOUNT_OPTIONS=errors=panic
	refused "errors=panic" "it is always remount-ro" mount_it
	for bad in age cache; do
		MOUNT_OPTIONS=$bad
		refused "$bad without a value" "mount option $bad needs a value" mount_it
	done
	for bad in norecovery user_xattr; do
		MOUNT_OPTIONS=$bad=1
		refused "$bad with a value" "mount option $bad takes no value" mount_it
	done
	MOUNT_OPTIONS=no-such-option
	refused "unknown" "Unknown parameter" mount_it
	MOUNT_OPTIONS=norecovery
	refused "norecovery without ro" "needs ro" mount_it
	MOUNT_OPTIONS=ro,norecovery
	check "norecovery with ro" mount_it
	refused "norecovery, made writable" "without recovery" mount -o remount,rw "$MNT"
	check "umount" umount "$MNT"
	MOUNT_OPTIONS=
}

group_remount() {
	fresh || { failed remount "no volume"; return; }
	echo one >"$MNT/one"
	check "to read-only" mount -o remount,ro "$MNT"
	refused "nothing is written" "Read-only" touch "$MNT/two"
	equal "everything is in the tree" "$(cat $SYS/log_length) $(cat $SYS/dirty_nodes)" "0 0"
	echo 3 >/proc/sys/vm/drop_caches
	check "the volume is clean" build/fsck.tux3 -n --data "$DEVICE"
	equal "it is readable" "$(cat "$MNT/one")" one
	check "to writable" mount -o remount,rw "$MNT"
	check "it is" bash -c "echo two >$MNT/two && sync"
	exec 5>"$MNT/open"
	refused "not while somebody writes" "busy" mount -o remount,ro "$MNT"
	exec 5>&-
	exec 5<"$MNT/one"
	rm "$MNT/one"
	refused "not with an open file that has no name" "still open" mount -o remount,ro "$MNT"
	exec 5<&-
	rm "$MNT/two"
	check "right after removing files" mount -o remount,ro "$MNT"
	checked_umount "umount read-only"
	MOUNT_OPTIONS=ro
	check "mount read-only" mount_it
	MOUNT_OPTIONS=
	check "then writable" mount -o remount,rw "$MNT"
	check "is written" bash -c "echo three >$MNT/three"
	for n in 1 2 3; do
		check "there and back $n" bash -c "mount -o remount,ro $MNT && mount -o remount,rw $MNT && echo $n >$MNT/n$n"
	done
	checked_umount "umount after remounts"
	mount_it
	exec 5>"$MNT/open"
	echo text >"$MNT/dirty"
	rm "$MNT/open"
	echo u >/proc/sysrq-trigger
	for n in $(seq 50); do [ "$(options)" = ro,relatime ] && break; sleep 0.1; done
	equal "emergency: read-only" "$(options)" ro,relatime
	refused "emergency: not writable while a file without a name is open" "still open" mount -o remount,rw "$MNT"
	exec 5>&-
	check "emergency: then it is" mount -o remount,rw "$MNT"
	equal "emergency: all is there" "$(cat "$MNT"/*)" "$(printf 'text\n1\n2\n3\nthree')"
	checked_umount "emergency: clean"
}

all_there_is() {
	(cd "$MNT" && find . -mindepth 1 -printf '%P %M %U %G %n %s %T@\n' | sort && getfattr -R -d -m - . && lsattr -R . &&
		find . -type f -print0 | sort -z | xargs -0r md5sum) 2>&1
}

# With -o sync every operation is durable when it returns.
group_sync_option() {
	local command before
	MOUNT_OPTIONS=sync,age=600
	fresh || { failed "sync option" "no volume"; return; }
	head -c 300000 /dev/urandom >/tmp/bytes
	for command in "mkdir $MNT/dir" "cp /tmp/bytes $MNT/file" "chmod 600 $MNT/file" "chown 1:2 $MNT/file" "touch -d @7 $MNT/file" \
		"setfattr -n user.name -v text $MNT/file" "setfacl -m u:3:r $MNT/file" "chattr +d $MNT/file" \
		"truncate -s 1000 $MNT/file" "truncate -s 50000 $MNT/file" "fallocate -l 100000 $MNT/file" \
		"fallocate -p -l 4096 $MNT/file" "ln $MNT/file $MNT/dir/link" "mv $MNT/file $MNT/dir/moved" "rm $MNT/dir/link"; do
		check "sync option: $command" $command
		before=$(all_there_is)
		crash
		equal "sync option: durable after $command" "$(all_there_is)" "$before"
	done
	checked_umount "sync option: umount"
	MOUNT_OPTIONS=
}

# Beside somebody who goes on working, too.
group_one_commit() {
	local deltas i writer
	MOUNT_OPTIONS=age=600
	fresh || { failed "one commit" "no volume"; return; }
	while [ ! -e /tmp/stop ]; do echo text >>"$MNT/file"; done &
	writer=$!
	deltas=$(cat $SYS/deltas)
	for ((i = 0; i < 20; i++)); do
		sync -f "$MNT"
	done
	deltas=$(($(cat $SYS/deltas) - ${deltas:?}))
	touch /tmp/stop
	wait $writer
	rm /tmp/stop
	check "one commit: of each syncfs, not two ($deltas of 20)" test $deltas -le 28
	checked_umount "one commit: umount"
	MOUNT_OPTIONS=
}

deltas_since() {
	echo $(($(cat $SYS/deltas) - $1))
}

# sync_file_range only begins to write: for a few small files that is no commit, for much it is.
group_writing_begins() {
	local deltas i
	MOUNT_OPTIONS=age=600
	fresh || { failed "writing begins" "no volume"; return; }
	deltas=$(cat $SYS/deltas)
	for ((i = 0; i < 10; i++)); do
		xfs_io -f -c "pwrite -q 0 8k" -c "sync_range -w 0 8k" "$MNT/file$i"
		sleep 0.1
	done
	equal "sync_file_range: of small files, no commit" "$(deltas_since ${deltas:?})" 0
	xfs_io -f -c "pwrite -q 0 4m" -c "sync_range -w 0 4m" "$MNT/large"
	for ((i = 0; i < 600; i++)); do
		[ "$(deltas_since $deltas)" = 0 ] || break
		sleep 0.1
	done
	check "sync_file_range: of a large one, a commit" test "$(deltas_since $deltas)" -gt 0
	checked_umount "sync_file_range: umount"
	MOUNT_OPTIONS=
}

# With -o dirsync every change of a name is, and what else changed need not be.
group_dirsync_option() {
	local deltas
	MOUNT_OPTIONS=dirsync,age=600,fsync=ahead
	fresh || { failed "dirsync option" "no volume"; return; }
	touch "$MNT/first"		# an area for what goes ahead comes with the first commit
	dd if=/dev/zero of="$MNT/first" bs=1M count=2 conv=notrunc status=none
	deltas=$(cat $SYS/deltas)
	touch "$MNT/made"
	equal "dirsync option: a new file takes no commit" "$(cat $SYS/deltas)" "${deltas:?}"
	sync "$MNT"
	equal "dirsync option: nor does fsync of its directory then" "$(cat $SYS/deltas)" "$deltas"
	check "dirsync option: other files stay dirty" test "$(cat $SYS/dirty_bytes)" -ge 2097152
	crash
	check "dirsync option: it is there" test -e "$MNT/made"
	mv "$MNT/made" "$MNT/moved"
	mkdir "$MNT/dir"
	ln "$MNT/moved" "$MNT/dir/link"
	rm "$MNT/moved"
	crash
	equal "dirsync option: all other changes are" "$(cd "$MNT" && find . -mindepth 1 | sort | tr '\n' ' ')" "./dir ./dir/link ./first "
	checked_umount "dirsync option: umount"
	MOUNT_OPTIONS=
}

atime() {	# the year
	date -d "@$(stat -c %X "$MNT/file")" +%Y
}

read_late() {	# its times become old, durably; then it is read, which is a change of its times only
	touch -a -d 2001-01-01 "$MNT/file" && sync -f "$MNT" && cat "$MNT/file" >/dev/null
}

crash() {	# what no delta had is lost
	xfs_io -r -x -c shutdown "$MNT"
	umount "$MNT" && mount_it
}

# A commit lets go of inodes that nobody else holds, and whose time is a change for which there is no room: it does not wait for
# the next commit, which would be its own.
lazytime_when_full() {
	local i n=0
	MOUNT_OPTIONS=lazytime,age=600
	fresh -s 64M || { failed lazytime "no small volume"; return; }
	for i in $(seq 50); do echo text >"$MNT/$i"; done
	sync -f "$MNT"
	dd if=/dev/zero of="$MNT/fill" bs=64k status=none 2>/dev/null
	dd if=/dev/zero of="$MNT/fill2" bs=4k status=none 2>/dev/null
	for i in 1 2; do
		while touch "$MNT/more$i$((n++))" 2>/dev/null; do :; done
		sync -f "$MNT"
	done
	for i in 1 2 3; do
		check "lazytime: changes on a full volume $i" chmod "64$i" "$MNT"/[1-9]
		cat "$MNT"/[1-9] >/dev/null
		for _ in 1 2 3; do echo 2 >/proc/sys/vm/drop_caches; done	# what was used of late stays once
		check "lazytime: and one more $i" chmod "64$i" "$MNT/20"
		check "lazytime: and a commit $i" sync "$MNT/20"
	done
	checked_umount "lazytime: clean, when full"
}

# With -o lazytime a read changes nothing that would have to be committed; but its time is not lost for ever.
group_lazytime() {
	local now n
	now=$(date +%Y)
	MOUNT_OPTIONS=lazytime,strictatime,age=600
	fresh || { failed lazytime "no volume"; return; }
	equal "lazytime: is shown" "$(options)" "rw,lazytime,age=600"
	echo text >"$MNT/file"
	read_late
	equal "lazytime: a read is no change" "$(cat $SYS/dirty_changes)" 0
	equal "lazytime: but seen" "$(atime)" "$now"
	crash
	equal "lazytime: a crash loses it" "$(atime)" 2001
	read_late
	sync "$MNT/file"
	crash
	equal "lazytime: fsync" "$(atime)" "$now"
	read_late
	sync -f "$MNT"
	crash
	equal "lazytime: syncfs" "$(atime)" "$now"
	read_late
	chmod 600 "$MNT/file"
	sync -d "$MNT/file"
	crash
	equal "lazytime: with another change" "$(atime)" "$now"
	read_late
	check "lazytime: umount" umount "$MNT"
	mount_it
	equal "lazytime: after umount" "$(atime)" "$now"
	read_late
	echo 2 >/proc/sys/vm/drop_caches
	check "lazytime: eviction is a change" [ "$(cat $SYS/dirty_changes)" -gt 0 ]
	equal "lazytime: and reads as one" "$(atime)" "$now"
	read_late
	n=$(cat /proc/sys/vm/dirtytime_expire_seconds)
	echo 1 >/proc/sys/vm/dirtytime_expire_seconds
	for _ in $(seq 600); do [ "$(cat $SYS/dirty_changes)" = 0 ] || break; sleep 0.1; done
	check "lazytime: some time it is a change" [ "$(cat $SYS/dirty_changes)" -gt 0 ]
	echo "$n" >/proc/sys/vm/dirtytime_expire_seconds
	read_late
	check "lazytime: no longer" mount -o remount,nolazytime "$MNT"
	equal "lazytime: no longer shown" "$(options)" "rw,age=600"
	crash
	equal "lazytime: what was held went with the remount" "$(atime)" "$now"
	MOUNT_OPTIONS=strictatime,age=600
	umount "$MNT" && mount_it
	read_late
	check "lazytime: without it a read is a change" [ "$(cat $SYS/dirty_changes)" -gt 0 ]
	checked_umount "lazytime: umount again"
	lazytime_when_full
	MOUNT_OPTIONS=
}

group_freeze() {
	fresh || { failed freeze "no volume"; return; }
	cp -r core "$MNT/"
	exec 5>"$MNT/removed"
	echo text >&5
	check "freeze" fsfreeze -f "$MNT"
	(echo late >"$MNT/late"; touch /tmp/written) &
	check "sync" timeout 20 sync
	check "syncfs" timeout 20 sync -f "$MNT"
	check "statfs" timeout 20 stat -f "$MNT"
	check "reading" diff -r core "$MNT/core"
	local before
	before=$(cat $SYS/device_writes)
	sleep 2
	equal "nothing is written" "$(cat $SYS/device_writes)" "$before"
	copy_device
	check "what is on the disk is clean" build/fsck.tux3 -n --data /tmp/frozen.img
	rm /tmp/frozen.img
	check "who writes waits" [ ! -e /tmp/written ]
	check "thaw" fsfreeze -u "$MNT"
	wait
	equal "the write went through" "$(cat "$MNT/late")" late
	exec 5>&-
	rm "$MNT/removed"
	# A file without a name goes out of use while frozen.
	exec 5<"$MNT/late"
	rm "$MNT/late"
	fsfreeze -f "$MNT"
	exec 5<&-
	sleep 0.2
	check "thaw again" fsfreeze -u "$MNT"
	checked_umount "umount after freezing"
}

# Freezing, syncing, memory pressure and at last a shutdown, while others work.
group_busy() {
	local n
	fresh || { failed busy "no volume"; return; }
	rm -f /tmp/stop
	for n in 1 2 3; do
		(while [ ! -e /tmp/stop ]; do
			cp -r core "$MNT/copy$n" && mv "$MNT/copy$n" "$MNT/moved$n" && rm -r "$MNT/moved$n"
		done) 2>/dev/null &
	done
	(while [ ! -e /tmp/stop ]; do sync -f "$MNT"; sleep 0.1; done) 2>/dev/null &
	(while [ ! -e /tmp/stop ]; do echo 3 >/proc/sys/vm/drop_caches; sleep 0.3; done) &
	for n in 1 2 3 4 5; do
		sleep 1
		fsfreeze -f "$MNT" || failed "busy: freeze $n" "exit status $?"
		copy_device
		check "busy: clean while frozen $n" build/fsck.tux3 -n --data /tmp/frozen.img
		fsfreeze -u "$MNT" || failed "busy: thaw $n" "exit status $?"
	done
	for n in 1 2 3; do
		mount -o remount,ro "$MNT" 2>/dev/null && mount -o remount,rw "$MNT"
		sleep 0.3
	done
	xfs_io -r -x -c shutdown "$MNT"
	sleep 1
	touch /tmp/stop
	wait
	rm -f /tmp/stop /tmp/frozen.img
	check "busy: umount" umount "$MNT"
	check "busy: mount" mount_it
	checked_umount "busy: clean after it all"
}

group_shutdown() {
	local how
	for how in freeze commit "at once"; do		# the first two keep all that was done
		fresh || { failed "shutdown $how" "no volume"; return; }
		for n in 1 2 3 4 5 6 7 8; do echo text >"$MNT/file$n"; done
		sync
		dd if=/dev/urandom of="$MNT/big" bs=1M count=20 status=none
		mkdir "$MNT/dir"
		rm "$MNT/file8"
		exec 5<"$MNT/file7"
		rm "$MNT/file7"
		refused "shutdown $how: only root may" "not permitted" su user1 -c "xfs_io -r -x -c shutdown $MNT"
		case $how in
		freeze) check "shutdown $how, and monitors hear of it" tests/vm/guest/monitor.py "$MNT" python3 -c \
			"import fcntl, os; fcntl.ioctl(os.open('$MNT', 0), 0x8004587d, bytes(4))" ;;
		commit) check "shutdown $how" xfs_io -r -x -c "shutdown -f" "$MNT" ;;
		*) check "shutdown $how, and monitors hear of it" tests/vm/guest/monitor.py "$MNT" xfs_io -r -x -c shutdown "$MNT" ;;
		esac
		refused "shutdown $how: no new file" "Read-only file system" touch "$MNT/new"
		check "shutdown $how: shown read-only" grep -q ",emergency_ro" <<<"$(options)"
		refused "shutdown $how: sync" "Input/output error" sync -f "$MNT"
		exec 5<&-
		refused "shutdown $how: not writable again" "after an error" bash -c \
			"mount -o remount,ro $MNT && mount -o remount,rw $MNT"
		dmesg -C
		check "shutdown $how: umount" umount "$MNT"
		check "shutdown $how: a line at umount" eval "dmesg | grep -q 'unmounted, after an error'"
		check "shutdown $how: mount" mount_it
		check "shutdown $how: a line at mount" eval "dmesg | grep -q 'volume .* mounted'"
		[ "$how" = "at once" ] ||
			equal "shutdown $how: is all there" "$(stat -c %s "$MNT/big") $(ls "$MNT" | wc -l)" "20971520 8"
		equal "shutdown $how: what was synced is there" "$(cat "$MNT/file3")" text
		checked_umount "shutdown $how: clean after it"
	done
}

group_sysfs() {
	local file before program
	fresh --label numbers || { failed sysfs "no volume"; return; }
	for file in "$SYS"/*; do
		cat "$file" >/dev/null || failed "sysfs ${file##*/}" "cannot be read"
	done
	equal "label" "$(cat $SYS/label)" numbers
	equal "as listed, and three" "$(ls $SYS | sort)" "$( (build/tux3 help counters | sed 1,2d | cut -d" " -f1; \
		printf "%s\n" label uuid back_cpu_ns) | sort)"
	equal "tux3 stat tells all" "$(build/tux3 stat "$MNT" | cut -d" " -f1)" "$(build/tux3 help counters | sed 1,2d | cut -d" " -f1)"
	before=$(cat $SYS/committed_delta)
	echo text >"$MNT/file"
	sync -f "$MNT"
	check "deltas are counted" [ "$(cat $SYS/committed_delta)" -gt "$before" ]
	equal "total blocks" "$(cat $SYS/blocks)" "$(stat -f -c %b "$MNT")"
	check "writes" [ "$(cat $SYS/device_write_bytes)" -gt 0 ]
	check "CPU time of the back end" [ "$(cat $SYS/back_cpu_ns)" -gt 0 ]
	equal "tux3 stat of the mount" "$(build/tux3 stat "$MNT" inodes | awk '{print $2}')" "$(cat $SYS/inodes)"
	equal "tux3 stat of the device" "$(build/tux3 stat "$DEVICE" blocks | awk '{print $2}')" "$(cat $SYS/blocks)"
	for program in "fsck.tux3" "tux3 show" "tux3 graph" "mkfs.tux3 -f"; do
		refused "$program of a mounted device" "mounted on $MNT" build/$program "$DEVICE"
	done
	# Reading the numbers while the folder comes and goes.
	(while [ ! -e /tmp/stop ]; do cat $SYS/* >/dev/null 2>&1; done) &
	for n in 1 2 3 4 5; do umount "$MNT"; mount_it; done
	touch /tmp/stop
	wait
	rm /tmp/stop
	checked_umount "umount"
	check "the folder is gone" [ ! -e "$SYS" ]
}

flags() {
	lsattr -d "$1" | cut -d' ' -f1 | tr -d -
}

group_attributes() {
	fresh || { failed attributes "no volume"; return; }
	echo text >"$MNT/file"
	mkdir "$MNT/dir"
	check "chattr" chattr +iadA "$MNT/file"
	equal "lsattr" "$(flags "$MNT/file")" iadA
	chattr -ia "$MNT/file"
	chattr +a "$MNT/file"
	refused "append only: no overwriting" "not permitted" bash -c "echo new >$MNT/file"
	check "append only: appending" bash -c "echo more >>$MNT/file"
	refused "append only: stays" "not permitted" rm "$MNT/file"
	chattr +i "$MNT/dir"
	refused "immutable directory" "not permitted" touch "$MNT/dir/file"
	refused "a flag we do not have" "not supported" chattr +c "$MNT/dir"
	refused "not for everybody" "not permitted" su user1 -c "chattr -i $MNT/dir"
	check "project" chattr -p 77 "$MNT/file"
	check "generation" lsattr -v "$MNT/file"
	umount "$MNT"
	mount_it
	equal "after a mount" "$(flags "$MNT/file") $(flags "$MNT/dir")" "adA i"
	equal "after a mount: project" "$(lsattr -p "$MNT/file" | awk '{ print $1 }')" 77
	refused "after a mount: immutable" "not permitted" touch "$MNT/dir/file"
	chattr -i "$MNT/dir"
	check "made changeable" touch "$MNT/dir/file"
	checked_umount "umount with attributes"
}

group_trim() {
	fresh || { failed trim "no volume"; return; }
	dd if=/dev/urandom of="$MNT/big" bs=1M count=50 status=none
	sync
	rm "$MNT/big"
	cp -r core "$MNT/"
	sync
	check "fstrim" fstrim -v "$MNT"
	umount "$MNT"
	mount_it
	check "took nothing that is in use" diff -r core "$MNT/core"
	checked_umount "umount after trimming"
}

python_checks() {	# NAME SCRIPT ARGUMENTS...: a line "ok ..." or "FAILED ..." for each
	local output name=$1
	shift
	output=$(python3 "$@" 2>&1)
	echo "$output"
	PASSED=$((PASSED + $(grep -c ^ok <<<"$output")))
	FAILED=$((FAILED + $(grep -c ^FAILED <<<"$output")))
	grep -q "Traceback" <<<"$output" && failed "$name" "the program did not come to its end"
	checked_umount "umount after $name"
}

group_handles() {
	fresh || { failed handles "no volume"; return; }
	python_checks handles tests/vm/guest/handles.py "$MNT" "$DEVICE"
}

group_parents() {
	fresh || { failed parents "no volume"; return; }
	python_checks parents tests/vm/guest/parents.py "$MNT"
}

group_bulkstat() {
	fresh || { failed bulkstat "no volume"; return; }
	python_checks bulkstat tests/vm/guest/bulkstat.py "$MNT"
}

group_memory() {
	fresh || { failed memory "no volume"; return; }
	for n in 1 2 3; do
		cp -r core "$MNT/core$n"
		cp -r linux "$MNT/linux$n"
	done
	sync
	check "names are in memory" [ "$(cat $SYS/names_cached)" -gt 50 ]
	for n in 1 2 3; do echo 2 >/proc/sys/vm/drop_caches; done
	check "and are given back" [ "$(cat $SYS/names_cached)" -lt 50 ]
	check "everything is there" diff -r core "$MNT/core2"
	checked_umount "umount"
}

group_nfs() {
	fresh || { failed nfs "no volume"; return; }
	modprobe -a nfsd nfs nfsv4 2>/dev/null || { echo "skipped nfs: this kernel has none"; umount "$MNT"; return; }
	mkdir -p /tmp/nfs /var/lib/nfs/v4recovery /run/rpc_pipefs /run/sendsigs.omit.d
	mount -t nfsd nfsd /proc/fs/nfsd
	rpcbind -w 2>/dev/null
	exportfs -o rw,fsid=0,no_root_squash,no_subtree_check,sync "localhost:$MNT" && rpc.mountd && rpc.nfsd 2 ||
		{ echo "skipped nfs: the server does not start"; umount "$MNT"; return; }
	if timeout 60 mount -t nfs -o vers=4.2,soft,timeo=50 localhost:/ /tmp/nfs; then
		check "nfs: copy a tree" cp -r core /tmp/nfs/
		check "nfs: compare" diff -r core /tmp/nfs/core
		check "nfs: rename, link, remove" bash -c \
			"cd /tmp/nfs && mv core moved && ln moved/tree/tree.c link && rm moved/tree/tree.c && rm -r moved"
		exec 5</tmp/nfs/link
		echo 3 >/proc/sys/vm/drop_caches
		check "nfs: an open file without a cached inode" cmp core/tree/tree.c /dev/fd/5
		rm /tmp/nfs/link
		check "nfs: removed while open" cmp core/tree/tree.c - <&5
		exec 5<&-
		check "nfs: xattrs" bash -c \
			"touch /tmp/nfs/x && setfattr -n user.a -v b /tmp/nfs/x && getfattr -n user.a /tmp/nfs/x"
		umount /tmp/nfs
	else
		failed nfs "mount"
	fi
	rpc.nfsd 0
	exportfs -ua
	umount /proc/fs/nfsd
	sleep 1
	checked_umount "umount after nfs"
}

# Last: the disk does not come back.
group_gone() {
	fresh || { failed gone "no volume"; return; }
	cp -r core "$MNT/"
	sync
	echo lost >"$MNT/lost"
	exec 5>"$MNT/open"
	echo 1 >"/sys/block/${DEVICE##*/}/device/../remove"
	refused "gone: sync" "Input/output error" sync -f "$MNT"
	refused "gone: write" "Read-only file system" bash -c "echo text >$MNT/more"
	check "gone: statfs" stat -f "$MNT"
	exec 5>&-
	check "gone: umount" umount "$MNT"
}

group_unload() {
	fresh || { failed unload "no volume"; return; }
	cp -r core "$MNT/"
	refused "not while a volume is mounted" "in use" rmmod tux3
	# Busy until the last moment: dirty data, files without a name, names looked up.
	exec 5>"$MNT/held"
	rm "$MNT/held"
	(dd if=/dev/zero of="$MNT/zero" bs=1M count=50 status=none; rm -r "$MNT/core")
	exec 5>&-
	checked_umount "umount"
	if [ -e /run/vm/tux3.ko ]; then
		check "unload" rmmod tux3
		check "load" insmod /run/vm/tux3.ko
		check "mount" mount_it
		checked_umount "umount again"
	fi
}

all="mount readonly forced forced_beside options remount sync_option one_commit writing_begins dirsync_option lazytime freeze busy shutdown sysfs attributes trim handles parents bulkstat nfs memory unload gone"
for group in ${*:-$all}; do
	echo "# $group"
	group_$group
	mountpoint -q "$MNT" && umount "$MNT"
done
summary
