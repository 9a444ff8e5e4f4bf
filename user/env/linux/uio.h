/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_UIO_H
#define TUX3_ENV_UIO_H

#include <sys/uio.h>
#include <linux/types.h>

struct kvec {
	void *iov_base;		/* as struct iovec */
	size_t iov_len;
};

#endif
