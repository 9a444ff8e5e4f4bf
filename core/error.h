/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Words for the error numbers that messages tell. */
#ifndef TUX3_ERROR_H
#define TUX3_ERROR_H

const char *error_text(int err);	/* of -errno or errno */

#endif
