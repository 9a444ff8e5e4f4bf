/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_BUILD_BUG_H
#define TUX3_ENV_BUILD_BUG_H

#include <assert.h>

/* The condition is the message; one of one's own is allowed. */
#undef static_assert
#define static_assert(condition, ...) _Static_assert(condition, #condition)

#define BUILD_BUG_ON(condition) _Static_assert(!(condition), "BUILD_BUG_ON: " #condition)

#endif
