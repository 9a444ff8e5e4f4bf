#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tests/vm/held.sh [SERIES]: tests/vm/guest/held.sh, with the module that it needs.
cd "$(dirname "$0")/../.." || exit 1
series=${1:-}
vm/fetch ${series:+--series $series} headers || exit
make --no-print-directory module-holder SERIES="$series" || exit 1
exec vm/run ${series:+--series $series} --disk 256M --copy-in "build/module${series:+-$series}-holder/holder.ko" -- tests/vm/guest/held.sh
