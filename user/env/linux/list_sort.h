/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_LIST_SORT_H
#define TUX3_ENV_LIST_SORT_H

#include <linux/list.h>

typedef int (*list_cmp_func_t)(void *priv, const struct list_head *a, const struct list_head *b);

/* Stable.  cmp() returns > 0 if a is to come after b. */
void list_sort(void *priv, struct list_head *head, list_cmp_func_t cmp);

#endif
