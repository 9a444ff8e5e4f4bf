#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/vm/build.sh [SERIES]: fetch what virtual machines need, build the module from scratch; a warning fails.
# Exit status 126 as that of vm/fetch: the mirror has no kernel of the series.
cd "$(dirname "$0")/../.." || exit 1
series=${1:-}
vm/fetch ${series:+--series $series} || exit
# vm/run goes on with it, unless it has one of its own already.
out=build/module${series:+-$series}
[ -n "$series" ] || [ ! -e $out ] || out=build/module-test
rm -rf "$out"
make --no-print-directory -j"$(nproc)" module SERIES="$series" MODULE_OUT="$out" >"$out.log" 2>&1
status=$?
cat "$out.log"
[ $out != build/module-test ] || rm -rf $out
[ $status = 0 ] && ! grep -q "warning:" "$out.log"
