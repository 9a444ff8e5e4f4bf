// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names in intents, at open: the one of a new file, and those that were changed otherwise (core/names/name_closure.h).
 *
 * A record says what a name leads to.  Where it does already, as on top of the delta in which it was changed, nothing
 * is done: and then nothing of the inodes that it is about either, unless another name was.  But directories have the times that
 * are said of them: the name may have gone and come back since.
 */
#include "core/format/chain.h"
#include "core/format/name_hash.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/data/delete.h"
#include "core/inode/inode.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"

#define DIRENT_HEAD	(offsetof(struct record_dirent, entry) + sizeof(struct disk_dirent))
#define TOUCHED_MAX	128u		/* more than the names of an intent that anybody has written lead to */

/* Inodes whose names were changed, and directories in which some were. */
struct touched {
	struct volume *vol;
	const struct disk_intent *intent;
	u32 count;
	struct {
		__le64 ino;
		s32 entries;		/* a directory has so many more */
	} inode[TOUCHED_MAX];
};

static int touch(struct touched *touched, __le64 ino, s32 entries)
{
	u32 i;

	for (i = 0; i < touched->count && touched->inode[i].ino != ino; i++)
		;
	if (i == TOUCHED_MAX)
		return intent_bad(touched->vol, touched->intent, "it has too many names");
	if (i == touched->count)
		touched->inode[touched->count++].ino = ino;
	touched->inode[i].entries += entries;
	return 0;
}

/* ---- names ---- */

/* Whom the name leads to: 1, 0: there is no such name, or an error. */
static int find_holder(struct volume *vol, const struct tree_key *key, const char *name, u32 len, struct disk_dirent *holder)
{
	u32 room = TUX3_ITEM_MAX(vol->block_size);
	u8 *item = kvmalloc(room, GFP_KERNEL);
	const struct disk_dirent *entry;
	struct chain chain;
	int bytes, there = 0;

	if (!item)
		return -ENOMEM;
	bytes = tree_lookup(vol, key, item, room);
	chain = chain_of(item, max(bytes, 0));
	while (bytes > 0 && !there && (entry = chain_next_dirent(&chain))) {
		there = entry->len == len && !memcmp(entry->name, name, len);
		if (there)
			memcpy(holder, entry, sizeof(*holder));
	}
	kvfree(item);
	return bytes < 0 && bytes != -ENOENT ? bytes : there;
}

static int set_name(struct volume *vol, const struct tree_key *key, const struct disk_dirent *entry, const char *name)
{
	struct record_dirent record = {
		.dir = cpu_to_le64(key->ino), .hash = cpu_to_le64(key->offset), .entry = *entry,
	};

	return log_record_at(vol, key, entry->ino ? TUX3_RECORD_DIRENT_SET : TUX3_RECORD_DIRENT_DELETE, &record, DIRENT_HEAD, name,
			     entry->len);
}

static bool type_is_dir(u8 type)
{
	return type == S_IFDIR >> 12;
}

/* Of a directory that is there: 0, or an error, said. */
static int dir_attr(struct volume *vol, const struct disk_intent *intent, __le64 dir, struct disk_attr *attr)
{
	int found = intent_tree_attr(vol, dir, attr);

	if (found < 0)
		return found;
	return found && S_ISDIR(le32_to_cpu(attr->mode)) ? 0 : intent_bad(vol, intent, "a directory of one of its names is not there");
}

/* Is what the name is to lead to of that type, and there? */
static int check_target(struct touched *touched, const struct disk_dirent *entry, bool *named)
{
	const struct disk_intent *intent = touched->intent;
	struct disk_attr attr;
	int found = 1;

	if (entry->ino == intent->ino) {
		attr = intent->attr;
		*named = true;
	} else {
		found = intent_tree_attr(touched->vol, entry->ino, &attr);
	}
	if (found < 0)
		return found;
	if (!found || (le32_to_cpu(attr.mode) & S_IFMT) >> 12 != entry->type || type_is_dir(entry->type))
		return intent_bad(touched->vol, intent, "what one of its names is to lead to is not there, or another kind of file");
	return 0;
}

static int name_record(struct touched *touched, const struct disk_record *record, bool *named)
{
	const struct record_dirent *dirent = (const void *)(record + 1);
	const char *name = (const char *)dirent + DIRENT_HEAD;
	struct volume *vol = touched->vol;
	struct disk_dirent entry, holder = {};
	struct disk_attr attr;
	struct tree_key key;
	bool set = le16_to_cpu(record->type) == TUX3_RECORD_DIRENT_SET;
	int there, err;

	if (le32_to_cpu(record->len) < DIRENT_HEAD)
		return intent_bad(vol, touched->intent, "one of its records is not valid");
	memcpy(&entry, &dirent->entry, sizeof(entry));
	if (!entry.len || le32_to_cpu(record->len) != DIRENT_HEAD + entry.len || set != !!entry.ino)
		return intent_bad(vol, touched->intent, "one of its records is not valid");
	key = tree_key(le64_to_cpu(dirent->dir), TUX3_ITEM_DIRENT,
		       name_hash(vol, le64_to_cpu(dirent->dir), TUX3_ITEM_DIRENT, name, entry.len));
	if (key.offset != le64_to_cpu(dirent->hash))
		return intent_bad(vol, touched->intent, "one of its names has another hash");
	err = dir_attr(vol, touched->intent, dirent->dir, &attr);
	if (!err && set)
		err = check_target(touched, &entry, named);
	there = err ? err : find_holder(vol, &key, name, entry.len, &holder);
	if (there < 0)
		return there;
	if (holder.ino == entry.ino)
		return 0;
	if (there && type_is_dir(holder.type))
		return intent_bad(vol, touched->intent, "one of its names is that of a directory");
	err = set_name(vol, &key, &entry, name);
	if (!err)
		err = touch(touched, dirent->dir, set - there);
	if (!err && there)
		err = touch(touched, holder.ino, 0);
	return err || !set ? err : touch(touched, entry.ino, 0);
}

/* ---- what follows from them ---- */

static bool time_is_later(__le64 sec, __le32 nsec, __le64 than_sec, __le32 than_nsec)
{
	s64 a = le64_to_cpu(sec), b = le64_to_cpu(than_sec);

	return a != b ? a > b : le32_to_cpu(nsec) > le32_to_cpu(than_nsec);
}

/* Set forward. */
static void dir_times(struct disk_attr *dir, __le64 mtime_sec, __le32 mtime_nsec, __le64 ctime_sec, __le32 ctime_nsec)
{
	if (time_is_later(mtime_sec, mtime_nsec, dir->mtime_sec, dir->mtime_nsec)) {
		dir->mtime_sec = mtime_sec;
		dir->mtime_nsec = mtime_nsec;
	}
	if (time_is_later(ctime_sec, ctime_nsec, dir->ctime_sec, dir->ctime_nsec)) {
		dir->ctime_sec = ctime_sec;
		dir->ctime_nsec = ctime_nsec;
	}
}

static void dir_entries(struct disk_attr *dir, s32 entries)
{
	dir->size = cpu_to_le64(attr_entries_after(le64_to_cpu(dir->size), entries));
	dir->change = cpu_to_le64(le64_to_cpu(dir->change) + 1);
}

static int file_links(struct volume *vol, const struct intent_named *named, struct disk_attr *attr)
{
	bool had = attr->nlink, has = named->nlink;

	attr->nlink = named->nlink;
	attr->ctime_sec = named->ctime_sec;
	attr->ctime_nsec = named->ctime_nsec;
	attr->change = cpu_to_le64(le64_to_cpu(attr->change) + 1);
	return had == has ? 0 : delete_mark_orphan(vol, le64_to_cpu(named->ino), had ? TUX3_ORPHAN_DELETE : 0, 0);
}

/* What is said of the inode.  NULL: nothing. */
static const struct intent_named *find_named(const struct disk_intent *intent, const void *records, __le64 ino)
{
	const struct disk_record *record;
	u32 at = 0;

	while (log_next_record(records, le32_to_cpu(intent->records), &at, &record) > 0) {
		const struct intent_named *named = (const void *)(record + 1);

		if (le16_to_cpu(record->type) == TUX3_INTENT_NAMED && named->ino == ino)
			return named;
	}
	return NULL;
}

static int settle(struct touched *touched, const void *records, u32 i)
{
	__le64 ino = touched->inode[i].ino;
	const struct intent_named *named = find_named(touched->intent, records, ino);
	struct volume *vol = touched->vol;
	struct disk_attr attr;
	int found = intent_tree_attr(vol, ino, &attr), err = 0;

	if (found < 0)
		return found;
	if (!found || !named)
		return intent_bad(vol, touched->intent, "an inode that got or lost one of its names is not there, or nothing is said of it");
	if (S_ISDIR(le32_to_cpu(attr.mode))) {
		dir_entries(&attr, touched->inode[i].entries);
		dir_times(&attr, named->mtime_sec, named->mtime_nsec, named->ctime_sec, named->ctime_nsec);
	} else {
		err = file_links(vol, named, &attr);
	}
	return err ? err : intent_log_attr(vol, ino, &attr);
}

/* Their times, whether or not a name changes by this. */
static int touch_dirs(struct touched *touched, const void *records)
{
	const struct disk_intent *intent = touched->intent;
	const struct disk_record *record;
	struct disk_attr attr;
	int found = 0;
	u32 at = 0;

	while (found >= 0 && log_next_record(records, le32_to_cpu(intent->records), &at, &record) > 0) {
		const struct intent_named *named = (const void *)(record + 1);

		if (le16_to_cpu(record->type) != TUX3_INTENT_NAMED)
			continue;
		found = intent_tree_attr(touched->vol, named->ino, &attr);
		if (found > 0 && S_ISDIR(le32_to_cpu(attr.mode)))
			found = touch(touched, named->ino, 0);
	}
	return min(found, 0);
}

int intent_recover_names(struct volume *vol, const struct disk_intent *intent, const void *records, bool *named)
{
	struct touched *touched = kzalloc(sizeof(*touched), GFP_KERNEL);
	bool is_dir = S_ISDIR(le32_to_cpu(intent->attr.mode));
	const struct disk_record *record;
	u32 at = 0, i;
	int err = 0, more;

	if (!touched)
		return -ENOMEM;
	touched->vol = vol;
	touched->intent = intent;
	*named = false;
	while (!err && (more = log_next_record(records, le32_to_cpu(intent->records), &at, &record)) != 0) {
		u32 type = more < 0 ? 0 : le16_to_cpu(record->type);

		if (more < 0)
			err = intent_bad(vol, intent, "one of its records is not valid");
		else if (type == TUX3_RECORD_DIRENT_SET || type == TUX3_RECORD_DIRENT_DELETE)
			err = name_record(touched, record, named);
		else if (type == TUX3_INTENT_NAMED ? le32_to_cpu(record->len) != sizeof(struct intent_named) : is_dir)
			err = intent_bad(vol, intent, "one of its records is not valid");
	}
	if (!err)
		err = touch_dirs(touched, records);
	for (i = 0; i < touched->count && !err; i++)
		if (touched->inode[i].ino != intent->ino || is_dir)
			err = settle(touched, records, i);
	kfree(touched);
	return err;
}

/* ---- the name of a new file or directory ---- */

/* Its directory has one more, since it was made. */
static int name_was_made(struct volume *vol, const struct disk_intent *intent)
{
	const struct disk_attr *made = &intent->attr;
	struct disk_attr attr;
	int err = dir_attr(vol, intent, intent->dir, &attr);

	if (err)
		return err;
	dir_entries(&attr, 1);
	if (S_ISDIR(le32_to_cpu(made->mode)))
		attr.nlink = cpu_to_le32(min_t(u64, (u64)le32_to_cpu(attr.nlink) + 1, ATTR_LINKS_MAX));
	dir_times(&attr, made->btime_sec, made->btime_nsec, made->btime_sec, made->btime_nsec);
	return intent_log_attr(vol, intent->dir, &attr);
}

int intent_recover_name(struct volume *vol, const struct disk_intent *intent)
{
	const char *name = (const char *)intent + le32_to_cpu(intent->len) - intent->name_len;
	u64 dir = le64_to_cpu(intent->dir), hash = name_hash(vol, dir, TUX3_ITEM_DIRENT, name, intent->name_len);
	struct tree_key key = tree_key(dir, TUX3_ITEM_DIRENT, hash);
	struct disk_dirent holder, entry = {
		.ino = intent->ino, .type = (le32_to_cpu(intent->attr.mode) & S_IFMT) >> 12, .len = intent->name_len,
	};
	int there = find_holder(vol, &key, name, intent->name_len, &holder);

	if (there)
		return there < 0 ? there : intent_bad(vol, intent, "its name is there already");
	there = name_was_made(vol, intent);
	return there ? there : set_name(vol, &key, &entry, name);
}
