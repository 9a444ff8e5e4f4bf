/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_SORT_H
#define TUX3_ENV_SORT_H

#include <linux/types.h>

typedef int (*cmp_func_t)(const void *a, const void *b);
typedef void (*swap_func_t)(void *a, void *b, int size);

/* In place, allocates nothing, not stable.  swap may be NULL. */
void sort(void *base, size_t num, size_t size, cmp_func_t cmp, swap_func_t swap);

#endif
