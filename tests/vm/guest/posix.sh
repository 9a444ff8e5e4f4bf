#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The POSIX tests on a volume mounted by the module; the check after it.  In the machine:
#	vm/run --disk 1G -- tests/vm/guest/posix.sh [pytest options]
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh
fresh || exit 1
python3 -m pytest -q -p no:cacheprovider tests/posix --mnt "$MNT" "$@" >/tmp/posix.log 2>&1
status=$?
cat /tmp/posix.log
checked_umount "clean after the POSIX tests" | tee /tmp/checked
! grep -q FAILED /tmp/checked || exit 1
# The count is read from the last line.
tail -n 1 /tmp/posix.log
exit $status
