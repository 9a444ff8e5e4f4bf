/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Undo files: what was on a device before it was changed.  FORMAT 13 has their format.
 *
 * Not for several threads at once.
 */
#ifndef TUX3_UNDO_FILE_H
#define TUX3_UNDO_FILE_H

#include "core/env.h"

#define UNDO_MAGIC		0x4f444e5533585554ull	/* "TUX3UNDO" */
#define UNDO_RECORD_MAGIC	0x4352444e55335854ull	/* "TX3UNDRC" */
#define UNDO_VERSION		1u
#define UNDO_UNIT		4096u		/* offsets and sizes of records are multiples of it */
#define UNDO_RECORD_MAX		(1u << 20)	/* bytes of the device in one */

enum undo_state {
	UNDO_IS_SAVED,		/* nothing was put back */
	UNDO_IS_BEGUN,		/* some of it may have been */
	UNDO_IS_DONE,		/* all was */
	UNDO_STATES
};

enum undo_kind { UNDO_KIND_BYTES = 1, UNDO_KIND_END };

/* How the volume was before, and how the writer left it. */
struct undo_left {
	__le64 generation;	/* of its anchor; 0: there was none */
	__le64 delta;		/* the last one that is durable, in the tree or the log; 0: it cannot be opened */
	__le32 anchors_crc;	/* of all anchor slots that are valid, one after the other */
	__le32 spare;
};

struct disk_undo {
	__le64 magic;
	__le32 crc;		/* of these 512 bytes, with 0 here */
	__le32 version;
	__le64 file_id;		/* random; in each record, too */
	__le64 device_bytes;
	__le64 volume_id;	/* 0: the device had no anchor that could be read */
	__u8 uuid[16];
	__le64 created_ns;	/* Unix time */
	__le32 unit;		/* UNDO_UNIT */
	__le32 state;		/* enum undo_state */
	struct undo_left before;	/* anything was written to it */
	__u8 spare[416];
};

struct disk_undo_record {
	__le64 magic;
	__le32 crc;		/* of these 512 bytes, with 0 here */
	__le32 data_crc;	/* of what follows */
	__le64 file_id;
	__le64 seq;		/* 1, 2, ... */
	__le64 durable;		/* records that were on stable storage when this one was written */
	__le64 offset;		/* bytes, on the device */
	__le32 bytes;		/* that follow */
	__le32 kind;		/* enum undo_kind */
	struct undo_left left;	/* UNDO_KIND_END */
	__u8 spare[432];
};

static_assert(sizeof(struct disk_undo) == 512);
static_assert(sizeof(struct disk_undo_record) == 512);

/* Where the old bytes of a range of the device are in the file. */
struct undo_place {
	u64 offset, at;
	u32 bytes;
};

struct undo_file {
	char *path;
	int fd;
	struct disk_undo header;
	u64 end;		/* where the next record goes */
	u64 seq;		/* records in the file */
	u64 durable;		/* of them, those on stable storage */
	u64 saved_bytes;
	u64 unreadable_bytes;	/* of them: zeros in place of what the device could not read */
	int err;		/* of the first write that failed */
	/* Of one that was opened: */
	struct undo_place *places;
	u64 count, room;
	bool complete;		/* `left` counts */
	bool cut_off;		/* its last records were not written whole, and do not count */
	struct undo_left left;
};

/*
 * A new file, durable with its name; there must be none.  uuid and before may be NULL.  0 or -errno, and a sentence without a full
 * stop in why.
 */
int undo_file_create(const char *path, u64 device_bytes, const u8 *uuid, u64 volume_id, const struct undo_left *before,
		     struct undo_file **file, char *why, size_t why_size);
/* These bytes were at offset.  Counts once undo_file_sync() has returned 0.  0 or -errno, and it was told. */
int undo_file_append(struct undo_file *file, u64 offset, const void *data, u32 bytes);
int undo_file_sync(struct undo_file *file);
/* The last record.  Includes the sync. */
int undo_file_end(struct undo_file *file, const struct undo_left *left);

/* All of it is read and verified.  As undo_file_create(). */
int undo_file_open(const char *path, struct undo_file **file, char *why, size_t why_size);
int undo_file_read(struct undo_file *file, const struct undo_place *place, void *data);
int undo_file_set_state(struct undo_file *file, enum undo_state state);

void undo_file_close(struct undo_file *file);

#endif
