/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  user/env/log.h says where it goes. */
#ifndef TUX3_ENV_PRINTK_H
#define TUX3_ENV_PRINTK_H

#include <linux/compiler.h>

#define ENV_LOG_ERR	3	/* numbers as in syslog(3) */
#define ENV_LOG_WARN	4
#define ENV_LOG_INFO	6

void env_printk(int level, const char *fmt, ...) __printf(2, 3);

#ifndef pr_fmt
#define pr_fmt(fmt) fmt
#endif

#define pr_err(fmt, ...)	env_printk(ENV_LOG_ERR, pr_fmt(fmt), ##__VA_ARGS__)
#define pr_warn(fmt, ...)	env_printk(ENV_LOG_WARN, pr_fmt(fmt), ##__VA_ARGS__)
#define pr_info(fmt, ...)	env_printk(ENV_LOG_INFO, pr_fmt(fmt), ##__VA_ARGS__)

/* Nobody is flooded here: all of them. */
#define pr_err_ratelimited(fmt, ...)	pr_err(fmt, ##__VA_ARGS__)
#define pr_warn_ratelimited(fmt, ...)	pr_warn(fmt, ##__VA_ARGS__)

#endif
