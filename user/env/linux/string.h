/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_STRING_H
#define TUX3_ENV_STRING_H

#include <string.h>
#include <linux/types.h>

/* The first byte that is not c, NULL if there is none. */
void *memchr_inv(const void *start, int c, size_t bytes);
/* Always terminates; the length, or -E2BIG if it was cut. */
ssize_t strscpy(char *dest, const char *src, size_t size);

#endif
