/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  Adds nothing to the system's own. */
#ifndef TUX3_ENV_ERRNO_H
#define TUX3_ENV_ERRNO_H

#include_next <linux/errno.h>

#endif
