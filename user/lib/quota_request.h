/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What tux3 asks of tux3-fuse: quotas of the volume that is mounted, by an ioctl of any directory of it, by root. */
#ifndef TUX3_LIB_QUOTA_REQUEST_H
#define TUX3_LIB_QUOTA_REQUEST_H

#include <sys/ioctl.h>
#include "tux3.h"

struct tux3_quota_request {
	uint32_t type, id;	/* enum tux3_quota_type; what tux3_quota_next() finds comes back */
	uint32_t set;		/* TUX3_QUOTA_...: tux3_quota_set(); 0: tux3_quota_next() */
	uint32_t spare;
	struct tux3_quota quota;
};
#define TUX3_FUSE_IOC_QUOTA _IOWR('t', 0x74, struct tux3_quota_request)

#endif
