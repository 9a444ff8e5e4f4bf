#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Installs what this project needs and the machine lacks, from the distribution (Debian 12 or later, and
# relatives).  Quiet, and without root, when there is nothing to do.
#
#	scripts/deps.sh [run|test|bench]...	build and mount (default) | also: tests and benchmarks | what
#						bench/run full and repair compare with
set -euo pipefail

RUN=(gcc libc6-dev make binutils pkg-config fuse3 libfuse3-dev liburing-dev libblkid-dev)
# dbench, fsmark, fuse2fs, e2fsprogs: what bench/run fuse runs and compares with; matplotlib: pages of bench/run dbench.
# gcc-12, libelf-dev ...: what building a kernel module takes.  What runs in the virtual machine is not installed here:
# vm/fetch unpacks it into the cache.
# The rest: tests.
TEST=(libcmocka-dev python3 python3-pytest acl attr git graphviz mount util-linux procps
      dbench fsmark fuse2fs e2fsprogs python3-matplotlib gcc-12 libelf-dev xz-utils zstd dpkg strace)
BENCH=(xfsprogs btrfs-progs)

wanted=("${RUN[@]}")
for what in "$@"; do
	case $what in
	run) ;;
	test) wanted+=("${TEST[@]}") ;;
	bench) wanted+=("${BENCH[@]}") ;;
	*) echo "deps.sh: \"$what\" is neither run nor test nor bench." >&2; exit 2 ;;
	esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "deps.sh: this is no Debian, so nothing is installed; needed are what Debian calls: ${wanted[*]}" >&2
	exit 0
fi

missing=()
for package in "${wanted[@]}"; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "deps.sh: these packages are missing and only root can install them: ${missing[*]}" >&2
	exit 1
fi
echo "Installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_missing() {
	apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
# Package lists that are absent or old make the first try fail.
if ! install_missing && ! { apt-get update -q >"$log" 2>&1 && install_missing; }; then
	tail -n 30 "$log" >&2
	echo "deps.sh: the packages could not be installed; what apt-get said is above." >&2
	exit 1
fi
