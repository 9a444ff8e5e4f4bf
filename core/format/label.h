/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The name of a volume: what may be one. */
#ifndef TUX3_LABEL_H
#define TUX3_LABEL_H

#include "core/env.h"

/* 0, or -EINVAL and why: a sentence without a full stop.  For who makes a volume, and who renames it. */
int label_check(const void *label, size_t len, char *why, size_t why_size);

#endif
