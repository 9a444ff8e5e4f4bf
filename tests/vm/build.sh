#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/vm/build.sh: fetch what virtual machines need, build the module from scratch; a warning fails.
cd "$(dirname "$0")/../.." || exit 1
vm/fetch || exit 1
out=build/module-test
rm -rf $out
make --no-print-directory module MODULE_OUT=$out >build/module-test.log 2>&1
status=$?
cat build/module-test.log
rm -rf $out
[ $status = 0 ] && ! grep -q "warning:" build/module-test.log
