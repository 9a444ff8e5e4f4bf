/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A volume on a device in memory, for the tests of libtux3. */
#ifndef SUPPORT_LIB_H
#define SUPPORT_LIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "user/lib/internal.h"
#include "user/env/device_memory.h"

/*
 * ThreadSanitizer takes twenty times as long.  Of tests that need no threads it sees fewer sizes and rounds; the others see all,
 * with the same assertions.
 */
#ifdef __SANITIZE_THREAD__
#define FEWER(all, few) (few)
#else
#define FEWER(all, few) (all)
#endif

struct bed {
	struct tux3_device *dev;
	struct tux3 *volume;
	struct tux3_node *root;
	struct volume_options opts;
	u64 data_cache_bytes;
	bool quota, no_data_csum;
};

#define assert_ok(call) bed_assert_ok(call, #call, __FILE__, __LINE__)
void bed_assert_ok(long long result, const char *call, const char *file, int line);

void bed_make(struct bed *bed, u64 bytes, u32 block_size);	/* formats and opens; bed->opts set before */
void bed_open(struct bed *bed);
void bed_close(struct bed *bed);
void bed_reopen(struct bed *bed);
void bed_crash(struct bed *bed);	/* abandon, open again */
long bed_crash_peak(struct bed *bed);	/* the same; bytes of memory that opening takes at most */
void bed_check(struct bed *bed);	/* the checker finds nothing; the volume is closed meanwhile */
void bed_free(struct bed *bed);		/* closes, checks, frees */

/* What the device has, to be put back as often as need be: the volume is closed, or abandoned afterwards.  Only blocks that are
   not all zeros are kept and copied. */
struct bed_saved;
struct bed_saved *bed_save(struct bed *bed);
void bed_restore(struct bed *bed, const struct bed_saved *saved);
void bed_saved_free(struct bed_saved *saved);

/* The writes of the device from now on, but for the first so many, fail; and none any more. */
void bed_cut_after(struct bed *bed, u32 writes);
void bed_cut_over(struct bed *bed);

struct tux3_node *bed_file(struct bed *bed, const char *path);	/* made if need be */
struct tux3_node *bed_find(struct bed *bed, const char *path);	/* NULL: there is none */
u64 bed_file_ino(struct bed *bed, const char *path);		/* made if need be; its number */
void bed_inherit_acl(struct bed *bed, const char *path);		/* files that are made there get one */

/* To forge what is on the device, of a volume that is closed: then image_edit_end() (support_image.h). */
struct volume *bed_edit(struct bed *bed);
void edit_get_attr(struct volume *vol, u64 ino, struct disk_attr *attr);
void edit_set_attr(struct volume *vol, u64 ino, const struct disk_attr *attr);
u64 bed_random(u64 *state);

#endif
