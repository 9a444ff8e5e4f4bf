/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where pr_err(), pr_warn(), pr_info() and the WARN family go. */
#ifndef TUX3_ENV_LOG_H
#define TUX3_ENV_LOG_H

/*
 * level: as in syslog(3): 3 error, 4 warning, 6 information.  message: without the newline at its end.
 * Called in any thread, at once too.  NULL: back to the default, "tux3: message" on stderr.
 */
void env_set_log(void (*fn)(int level, const char *message));

#endif
