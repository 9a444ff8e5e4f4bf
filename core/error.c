// SPDX-License-Identifier: GPL-2.0-or-later
/* Words for error numbers: the kernel has none, and users do not know the numbers. */
#include "core/env.h"
#include "core/error.h"

const char *error_text(int err)
{
	static const struct {
		int number;
		const char *text;
	} errors[] = {
		{ ENOMEM, "out of memory" },
		{ EIO, "input/output error" },
		{ ENOSPC, "no space left on the device" },
		{ EROFS, "read-only" },
		{ EINVAL, "not valid" },
		{ ENOENT, "not there" },
		{ EEXIST, "there already" },
		{ EBUSY, "in use" },
		{ EAGAIN, "not possible now" },
		{ EINTR, "interrupted" },
		{ EFBIG, "too large" },
		{ ERANGE, "out of range" },
		{ EOVERFLOW, "too large for its field" },
		{ ENODATA, "no data" },
		{ EOPNOTSUPP, "not supported" },
		{ ETIMEDOUT, "timed out" },
		{ ENXIO, "the device is gone" },
		{ ENODEV, "the device is gone" },
		{ ESHUTDOWN, "the volume was stopped" },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(errors); i++)
		if (errors[i].number == (err < 0 ? -err : err))
			return errors[i].text;
	return "unexpected error";
}
