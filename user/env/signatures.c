/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Signatures of other filesystems: libblkid's, which is what mount(8), udev and fsck(8) go by, and a table of those
 * that the libblkid of Debian 12 does not know yet.
 *
 * libblkid names one at a time.  It is told to hide that and to look again, until nothing is left: a btrfs behind a
 * swap header, the second header of a GPT, each copy of a superblock.  Nothing is written here.
 */
#include <blkid/blkid.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "signatures.h"

#define SIGNATURES_MAX 4096	/* ZFS has some hundreds; what is more is a probe that does not move on */

struct finding {
	struct signature *found;
	int count;
};

static int add(struct finding *finding, uint64_t offset, uint32_t bytes, const char *kind, const char *type)
{
	struct signature *more;

	if (finding->count == SIGNATURES_MAX)
		return -EOVERFLOW;
	more = realloc(finding->found, (finding->count + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	finding->found = more;
	more += finding->count++;
	*more = (struct signature){ .offset = offset, .bytes = bytes, .kind = kind };
	snprintf(more->type, sizeof(more->type), "%s", type);
	return 0;
}

/* ---- libblkid ---- */

static const char *kind_of(blkid_probe probe)
{
	static const char *const kinds[][2] = {
		{ "filesystem", "filesystem" }, { "raid", "member of a RAID or volume group" },
		{ "crypto", "encrypted volume" }, { "other", "reserved area" },
	};
	const char *usage;
	unsigned int i;

	if (blkid_probe_lookup_value(probe, "USAGE", &usage, NULL))
		return "signature";
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(usage, kinds[i][0]))
			return kinds[i][1];
	return "signature";
}

/* The one that libblkid names now.  1: it was added; 0: it has no place that could be wiped. */
static int add_probed(struct finding *finding, blkid_probe probe)
{
	const char *type, *offset, *magic, *kind = "partition table";
	uint64_t at;
	size_t len;
	int err;

	if (!blkid_probe_lookup_value(probe, "TYPE", &type, NULL)) {
		kind = kind_of(probe);
		if (blkid_probe_lookup_value(probe, "SBMAGIC_OFFSET", &offset, NULL) ||
		    blkid_probe_lookup_value(probe, "SBMAGIC", &magic, &len))
			return 0;
	} else if (blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL) ||
		   blkid_probe_lookup_value(probe, "PTMAGIC_OFFSET", &offset, NULL) ||
		   blkid_probe_lookup_value(probe, "PTMAGIC", &magic, &len)) {
		return 0;
	}
	at = strtoull(offset, NULL, 10);
	err = add(finding, at, len, kind, type);
	if (err)
		return err;
	if (!len || blkid_probe_hide_range(probe, at, len) || blkid_probe_step_back(probe))
		return -EIO;
	return 1;
}

static int find_probed(struct finding *finding, int fd)
{
	blkid_probe probe = blkid_new_probe();
	int err = 0;

	if (!probe)
		return -ENOMEM;
	/* Too small to hold anything: libblkid refuses it. */
	if (blkid_probe_set_device(probe, fd, 0, 0)) {
		blkid_free_probe(probe);
		return 0;
	}
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_MAGIC |
					  BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
	while (err >= 0 && !blkid_do_probe(probe))
		err = add_probed(finding, probe);
	blkid_free_probe(probe);
	return err < 0 ? err : 0;
}

/* ---- what it may not know ---- */

static const struct {
	const char *type, *magic;
	uint32_t bytes;
	int64_t offset;		/* below 0: from the end */
} others[] = {
#define BCACHEFS "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", 16
#define BCACHEFS_OLD "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", 16
	{ "bcachefs", BCACHEFS, 4096 + 24 },
	{ "bcachefs", BCACHEFS, (1 << 20) + 4096 + 24 },
	{ "bcachefs", BCACHEFS, (2 << 20) + 24 },
	{ "bcachefs", BCACHEFS, 24 - (1 << 20) },
	{ "bcachefs", BCACHEFS_OLD, (1 << 20) + 4096 + 24 },
	{ "bcachefs", BCACHEFS_OLD, (2 << 20) + 24 },
	{ "bcachefs", BCACHEFS_OLD, 24 - (1 << 20) },
	{ "btrfs", "_BHRfS_M", 8, (64 << 20) + 64 },	/* the second superblock */
	{ "btrfs", "_BHRfS_M", 8, (256LL << 30) + 64 },
};

static int find_others(struct finding *finding, int fd)
{
	off_t end = lseek(fd, 0, SEEK_END);
	char bytes[16];
	unsigned int i;
	int err = 0, known;

	for (i = 0; i < sizeof(others) / sizeof(others[0]) && !err; i++) {
		off_t at = others[i].offset + (others[i].offset < 0 ? end : 0);

		if (at < 0 || pread(fd, bytes, others[i].bytes, at) != others[i].bytes ||
		    memcmp(bytes, others[i].magic, others[i].bytes))
			continue;
		for (known = 0; known < finding->count && finding->found[known].offset != at; known++)
			;
		if (known == finding->count)
			err = add(finding, at, others[i].bytes, "filesystem", others[i].type);
	}
	return err;
}

int signatures_find(int fd, struct signature **found)
{
	struct finding finding = { };
	int err = find_probed(&finding, fd);

	if (!err)
		err = find_others(&finding, fd);
	if (err) {
		free(finding.found);
		return err;
	}
	*found = finding.found;
	return finding.count;
}

const char *signatures_text(const struct signature *found, int count, char *text, size_t size)
{
	size_t used = 0;
	int i, before;

	text[0] = 0;
	for (i = 0; i < count; i++) {
		for (before = 0; before < i && strcmp(found[before].type, found[i].type); before++)
			;
		if (before < i || used >= size)
			continue;
		used += snprintf(text + used, size - used, "%s%s %s (%s)", used ? ", " : "",
				 found[i].kind[0] == 'e' ? "an" : "a", found[i].kind, found[i].type);
	}
	return text;
}
