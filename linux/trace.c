// SPDX-License-Identifier: GPL-2.0-or-later
/* The code of the tracepoints that trace/tux3.h describes. */
#include "core/volume.h"

#define CREATE_TRACE_POINTS
#include "trace/tux3.h"
