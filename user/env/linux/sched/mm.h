/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  No reclaim here that could recurse. */
#ifndef TUX3_ENV_SCHED_MM_H
#define TUX3_ENV_SCHED_MM_H

static inline unsigned int memalloc_nofs_save(void)
{
	return 0;
}

static inline void memalloc_nofs_restore(unsigned int flags)
{
}

#endif
