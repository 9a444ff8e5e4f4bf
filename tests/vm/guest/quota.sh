#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Limits of users, groups and projects: hard, soft with grace, blocks and inodes, stores through mappings, changes of owner, df,
# quotactl(2), messages by netlink, noquota; and that they stand after a remount.  In the machine:
#	vm/run --disk 256M -- tests/vm/guest/quota.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh

quota() {
	check "$1" python3 tests/vm/guest/quota.py "$DEVICE" "$MNT" "$1"
}

tool() {
	build/tux3 quota "$MNT" project 99 --hard 10M --inodes-soft 7 &&
		build/tux3 quota "$MNT" group --grace 5000 &&
		build/tux3 quota "$MNT" --json |
		python3 -c "
import json, sys
found = {(line['type'], line['id']): line for line in json.load(sys.stdin)}
assert found['user', 3001]['bytes_time'] == 5 << 32
assert found['project', 99]['bytes_hard'] == 10 << 20 and found['project', 99]['inodes_soft'] == 7
assert found['project', 42]['bytes'] and found['group', 0]['bytes_grace'] == 5000
"
}

# Usage and limits, also later than 2038, as the tool told them when it could be written to.
told() {
	local before
	before=$(build/tux3 quota "$MNT" --json) && "$@" && [ "$(timeout 20 build/tux3 quota "$MNT" --json)" = "$before" ]
}

# The quotas of ext4 are not ours to set.
others() {
	truncate -s 64M /tmp/ext4.img && mkfs.ext4 -q -O quota /tmp/ext4.img && mkdir -p /tmp/ext4 &&
		mount -o loop,usrquota /tmp/ext4.img /tmp/ext4 || return 1
	refused "quotas of ext4" "not on a mounted Tux3 volume" build/tux3 quota /tmp/ext4
	refused "limits of ext4" "not on a mounted Tux3 volume" build/tux3 quota /tmp/ext4 user 1000 --hard 1M
	umount /tmp/ext4
}

# Of a volume that was made without them, and has files.
switched_on() {
	build/tux3 tune "$DEVICE" --quota on && mount_it &&
		build/tux3 quota "$MNT" user 1234 --inodes-hard 3 &&
		build/tux3 quota "$MNT" --json |
		python3 -c "
import json, sys
found = {(line['type'], line['id']): line for line in json.load(sys.stdin)}
assert found['user', 1234]['inodes'] == 3 and found['user', 1234]['bytes'] == 3 * 8192, found
" && chmod 777 "$MNT" && setpriv --reuid 1234 --clear-groups touch "$MNT/file-1" &&
		! setpriv --reuid 1234 --clear-groups touch "$MNT/more"
}

others || failed "ext4" "it could not be mounted"
fresh -O quota
for test in state hard mapping users grace netlink project owner unnamed acl; do
	quota $test
done
check "tux3 quota" tool
refused "limits of id 0" "Id 0 has no limits" build/tux3 quota "$MNT" group root --hard 10M
check "which change nothing" told bash -c "! build/tux3 quota $MNT group root --hard 10M"
check "a volume that is read-only" told mount -o remount,ro "$MNT"
mount -o remount,rw "$MNT"
exec 8>"$MNT/removed" && rm "$MNT/removed"
check "a volume that is frozen" told fsfreeze -f "$MNT"
exec 8>&-	# its deletion waits until it is thawed
check "Q_SYNC of that does not wait" timeout 20 python3 tests/vm/guest/quota.py "$DEVICE" "$MNT" frozen
fsfreeze -u "$MNT"
check "remount noquota" mount -o remount,noquota "$MNT"
quota noquota
checked_umount "usage is exact"
mount_it
quota after
checked_umount "and again"
fresh
refused "a volume without quotas" "No such process\|not supported\|Function not implemented\|Invalid argument" \
	python3 tests/vm/guest/quota.py "$DEVICE" "$MNT" state
refused "tux3 quota of a volume without" "mkfs.tux3 -O quota" build/tux3 quota "$MNT"
for n in 1 2 3; do
	head -c 8192 /dev/urandom > "$MNT/file-$n" && chown 1234 "$MNT/file-$n"
done
refused "switching on quotas of what is mounted" "unmount it" build/tux3 tune "$MNT" --quota on
umount "$MNT"
check "switched on" switched_on
checked_umount "switched on, and used"
summary
