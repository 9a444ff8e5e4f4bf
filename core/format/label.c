// SPDX-License-Identifier: GPL-2.0-or-later
/* What may be the name of a volume: see label.h.  It is shown in lists and on terminals, a line each. */
#include "core/format/format.h"
#include "core/format/label.h"

int label_check(const void *label, size_t len, char *why, size_t why_size)
{
	const u8 *bytes = label;
	size_t i;

	if (len > TUX3_LABEL_MAX) {
		snprintf(why, why_size, "a label can have up to %d bytes, not %zu", TUX3_LABEL_MAX, len);
		return -EINVAL;
	}
	for (i = 0; i < len; i++) {
		if (bytes[i] >= ' ' && bytes[i] != 0x7f)
			continue;
		snprintf(why, why_size, "a label cannot have control characters: byte %zu is 0x%02x", i + 1, bytes[i]);
		return -EINVAL;
	}
	return 0;
}
