# SPDX-License-Identifier: GPL-2.0-or-later
#
# For the scripts beside this one, which run in the virtual machine: a volume on $DEVICE (/dev/vda) mounted at $MNT.
#
#	. "$(dirname "$0")/lib.sh"
#	fresh [mkfs options]		format and mount
#	check NAME COMMAND...		one test: it passes if the command does
#	checked_umount NAME		unmount; the volume must be clean, with all checksums right
#	summary				the last line, and the exit status

DEVICE=${DEVICE:-/dev/vda}
MNT=${MNT:-/mnt}
MOUNT_OPTIONS=${MOUNT_OPTIONS:-}
PASSED=0
FAILED=0
TOLD_AT=$SECONDS

# Where the time goes: what has passed since the line before, if that is much.
took() {
	local seconds=$((SECONDS - TOLD_AT))
	[ $seconds -lt 5 ] || echo " ($seconds s)"
}

ok() {
	echo "ok $1$(took)"
	TOLD_AT=$SECONDS
	PASSED=$((PASSED + 1))
}

failed() {
	echo "FAILED $1$(took): $2"
	TOLD_AT=$SECONDS
	FAILED=$((FAILED + 1))
}

mount_it() {
	mount -t tux3 ${MOUNT_OPTIONS:+-o "$MOUNT_OPTIONS"} "$DEVICE" "$MNT"
}

fresh() {
	build/mkfs.tux3 -f --quiet "$@" "$DEVICE" && mount_it
}

check() {
	local name=$1 output
	shift
	if output=$("$@" 2>&1); then
		ok "$name"
	else
		failed "$name" "exit status $?: $(echo "$output" | tail -n 5)"
	fi
}

refused() {
	local name=$1 text=$2 output
	shift 2
	dmesg --clear
	if output=$("$@" 2>&1); then
		failed "$name" "it was not refused"
	elif { echo "$output"; dmesg; } | grep -q -- "$text"; then
		ok "$name"
	else
		failed "$name" "nothing says '$text': $output $(dmesg | tail -n 3)"
	fi
}

checked_umount() {
	local output
	if ! output=$(umount "$MNT" 2>&1); then
		failed "$1" "umount: $output"
		return 1
	fi
	if output=$(build/fsck.tux3 -n --data "$DEVICE" 2>&1); then
		ok "$1"
	else
		failed "$1" "fsck: $(echo "$output" | tail -n 20)"
	fi
}

summary() {
	echo "$PASSED passed, $FAILED failed"
	[ $FAILED = 0 ] && [ $PASSED -gt 0 ]
	exit
}
