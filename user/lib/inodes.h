/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What tux3 ls-inodes asks of tux3-fuse: see core/ioctl.h. */
#ifndef TUX3_LIB_INODES_H
#define TUX3_LIB_INODES_H

#include "core/ioctl.h"
#include "tux3.h"

/* 0, or -errno; who asks may. */
int tux3_answer_inodes(struct tux3 *volume, struct tux3_ioc_inodes *request);

#endif
