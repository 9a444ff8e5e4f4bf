/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  The system's own and S_IF... */
#ifndef TUX3_ENV_STAT_H
#define TUX3_ENV_STAT_H

#include_next <linux/stat.h>
#include <sys/stat.h>

#endif
