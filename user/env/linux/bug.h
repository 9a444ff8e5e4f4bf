/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * Warnings tell where they are and return the condition; nothing here ends the process.
 */
#ifndef TUX3_ENV_BUG_H
#define TUX3_ENV_BUG_H

#include <linux/compiler.h>
#include <linux/types.h>

void env_warn(const char *file, int line, const char *condition);

#define WARN_ON(condition) __extension__ ({				\
	bool env_warn_if = !!(condition);				\
	if (unlikely(env_warn_if))					\
		env_warn(__FILE__, __LINE__, #condition);		\
	unlikely(env_warn_if); })

#define WARN_ON_ONCE(condition) __extension__ ({			\
	static bool env_warned;						\
	bool env_warn_if = !!(condition);				\
	if (unlikely(env_warn_if) && !__atomic_exchange_n(&env_warned, true, __ATOMIC_RELAXED)) \
		env_warn(__FILE__, __LINE__, #condition);		\
	unlikely(env_warn_if); })

#endif
