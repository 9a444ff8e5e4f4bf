# SPDX-License-Identifier: GPL-2.0-or-later
#
# For tests/conformance.sh, here and in the virtual machine: pjdfstest, and fsx on volumes mounted with each of the options.
#
# Who includes it sets MNT, and has volume OPTIONS, which mounts a new volume there, and unmounted, which unmounts and checks it.
# "defaults" is an option, too.
. tests/vm/guest/lib.sh

PROGRAMS=$PWD/build/conformance

# Both users are there in every Debian.  What is skipped: read-only mounts, and a number of links that the filesystem ends at.
pjdfstest() {	# FOLDER
	local passed failed
	cat >"$1/pjdfstest.toml" <<-EOF
		[features]
		posix_fallocate = {}
		rename_ctime = {}
		utime_now = {}
		utimensat = {}
		[settings]
		naptime = 0.02
		allow_remount = false
		[dummy_auth]
		entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
	EOF
	"$PROGRAMS/pjdfstest" -c "$1/pjdfstest.toml" -p "$MNT" -s /dev/shm >"$1/pjdfstest.log" 2>&1
	passed=$(sed -n 's/^Summary: .* \([0-9]*\) passed.*/\1/p' "$1/pjdfstest.log")
	failed=$(sed -n 's/^Summary: \([0-9]*\) failed.*/\1/p' "$1/pjdfstest.log")
	if [ -z "$passed" ] || [ "$passed" -lt 380 ]; then
		failed pjdfstest "passed only ${passed:-none}: $(tail -n 20 "$1/pjdfstest.log")"
	elif [ "$failed" -gt 0 ]; then
		failed pjdfstest "$(grep -a 'failed *$' "$1/pjdfstest.log")"
	else
		PASSED=$((PASSED + passed))
	fi
}

# flen, the largest operation, whether stores wait for the commit to be found
fsx_settings() {	# LENGTH LARGEST NO-MSYNC
	cat <<-EOF
		flen = $1
		nomsyncafterwrite = $3
		[opsize]
		max = $2
		min = 0
		align = 1
		[weights]
		close_open = 1
		read = 10
		write = 10
		mapread = 10
		mapwrite = 10
		invalidate = 1
		truncate = 4
		fsync = 0.3
		fdatasync = 0.3
		posix_fallocate = 3
		punch_hole = 5
		sendfile = 3
		posix_fadvise = 2
		copy_file_range = 5
	EOF
}

# What goes on beside it: commits, of all and of another file, and pages that are dropped.
disturb() {
	while :; do
		sleep "0.$((RANDOM % 9 + 1))"
		case $((RANDOM % 3)) in
		0) sync ;;
		1) echo 3 >/proc/sys/vm/drop_caches ;;
		2) touch "$MNT/other"; sync "$MNT/other" ;;
		esac
	done
}

fsx() {	# FOLDER SEED OPTIONS
	local disturber n ended=()
	fsx_settings 20000 65536 false >"$1/0.toml"
	fsx_settings 262144 65536 false >"$1/1.toml"
	fsx_settings 5000000 300000 true >"$1/2.toml"
	disturb &
	disturber=$!
	for n in 0 1 2; do
		"$PROGRAMS/fsx" -f "$1/$n.toml" -N 5000 -S "$(($2 + n))" -P "$1" -q "$MNT/$n" >"$1/$n.log" 2>&1 &
		ended+=($!)
	done
	for n in 0 1 2; do
		if wait "${ended[n]}"; then
			ok "fsx $n, $3"
		else
			failed "fsx $n, $3" "$(tail -n 30 "$1/$n.log")"
		fi
	done
	kill "$disturber"
	wait "$disturber" 2>/dev/null
}

conformance() {	# FOLDER SEED OPTIONS...
	local folder=$1 seed=$2 options
	shift 2
	if volume "$1"; then
		pjdfstest "$folder"
		check "clean after pjdfstest" unmounted
	else
		failed pjdfstest "no volume"
	fi
	for options in "$@"; do
		if volume "$options"; then
			fsx "$folder" "$seed" "$options"
			check "clean after fsx, $options" unmounted
		else
			failed "fsx, $options" "no volume"
		fi
		seed=$((seed + 3))
	done
	summary
}
