/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What other filesystems, RAIDs, partition tables and the like left on a device to be recognised by. */
#ifndef TUX3_SIGNATURES_H
#define TUX3_SIGNATURES_H

#include <stddef.h>
#include <stdint.h>

struct signature {
	uint64_t offset;	/* of the magic number ... */
	uint32_t bytes;		/* ... and its length */
	const char *kind;	/* "filesystem", "partition table" ... */
	char type[32];		/* "ext4" */
};

/*
 * All of them, at both ends of the whole device or file that fd reads, as if each had been wiped when it was
 * found: what one hides comes to light.  The number found (their array to be freed) or -errno.
 */
int signatures_find(int fd, struct signature **found);

/* "a filesystem (ext4), a partition table (gpt)"; returns text. */
const char *signatures_text(const struct signature *found, int count, char *text, size_t size);

#endif
