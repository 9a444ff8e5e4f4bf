/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What files may hold when blocks of the device turn bad.  Of what a commit meets there a part is dropped, leaf by leaf, and all
 * else of the delta is committed: so such a file is at no boundary of a delta.  Each sector of it, and its size, is a register
 * then.  It holds what was last written there or, as far as no fsync has promised more, anything that was written before.  What
 * an fsync promises is what was changed since an fsync told last of a loss.
 *
 * Only files of which something was lost are looked at like this; of others a crash shows a boundary, as always.  While the volume
 * is in use it knows all of them by their newest contents, but for those that were lost, and for EIO.
 *
 * They are the files of one directory, which are in use all the time: who has not opened a file hears of no loss.  All operations
 * on them are of whole sectors.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim.h"

#define REGISTERS_MAX	64u			/* files in a life */
#define SECTORS		(REGISTER_BYTES / DISK_SECTOR)
#define PROMISED	(DISK_NEVER - 1)	/* by whatever was promised so far */

/* Something that a sector has held; or a size. */
struct version {
	u32 before;		/* index of the one that it took the place of, or ~0 */
	u32 op;			/* that put it there */
	u64 value;		/* seed of the pattern, 0: zeros; or the size */
	u64 promised;		/* event, or DISK_NEVER */
};

struct file_register {
	u32 id, told;		/* of the model; operation in which a loss was told last */
	struct tux3_node *node;	/* in use; NULL: it is gone, or the volume is closed */
	bool lossy;
	u32 newest[SECTORS + 1];	/* version of each sector; the last one is that of the size */
	struct version *versions;
	u32 count;
};

struct registers {
	u32 dir;		/* id */
	char name[SIM_PATH_MAX];
	bool was_bad;
	struct file_register *files[REGISTERS_MAX];
	u32 count;
};

static struct file_register *register_of(const struct sim_run *run, u32 id)
{
	u32 i;

	for (i = 0; run->registers && i < run->registers->count; i++)
		if (run->registers->files[i]->id == id)
			return run->registers->files[i];
	return NULL;
}

static struct file_register *register_at(const struct sim_run *run, const char *path)
{
	int err;
	u32 id = model_lookup(run->state, path, &err);

	return id == M_NONE ? NULL : register_of(run, id);
}

bool registers_lossy(const struct sim_run *run, u32 id)
{
	const struct file_register *file = register_of(run, id);

	return file && file->lossy;
}

u32 registers_list(const struct sim_run *run, struct tux3_node **nodes, u32 *ids, u32 max)
{
	u32 i, count = 0;

	for (i = 0; i < run->registers->count && count < max; i++) {
		if (!run->registers->files[i]->node)
			continue;
		nodes[count] = run->registers->files[i]->node;
		ids[count++] = run->registers->files[i]->id;
	}
	return count;
}

/* ---- what is written ---- */

static void version_add(struct sim_run *run, struct file_register *file, u32 at, u64 value)
{
	if (file->newest[at] != ~0u && file->versions[file->newest[at]].value == value)
		return;
	if (!(file->count & (file->count - 1)))
		file->versions = realloc(file->versions, (2 * file->count + 1) * sizeof(*file->versions));
	if (!file->versions)
		abort();
	file->versions[file->count] = (struct version){
		.before = file->newest[at], .op = run->op_index, .value = value, .promised = DISK_NEVER,
	};
	file->newest[at] = file->count++;
}

/* The model's file, as registers. */
static void register_note(struct sim_run *run, struct file_register *file)
{
	const struct m_inode *inode = run->state->inodes[file->id];
	u32 next = 0, i;
	u64 at;

	if (inode->size > REGISTER_BYTES || inode->size % DISK_SECTOR)
		abort();
	for (i = 0; i <= inode->extent_count; i++) {
		const struct m_extent *ext = i < inode->extent_count ? &inode->extents[i] : NULL;

		for (at = ext ? ext->start : REGISTER_BYTES; next < at / DISK_SECTOR; next++)
			version_add(run, file, next, 0);
		for (; ext && next < ext->end / DISK_SECTOR; next++)
			version_add(run, file, next, ext->seed);
	}
	version_add(run, file, SECTORS, inode->size);
}

static void register_promise(struct sim_run *run, struct file_register *file)
{
	u32 i;

	for (i = 0; i <= SECTORS; i++) {
		struct version *version = &file->versions[file->newest[i]];

		if (version->op > file->told && version->promised == DISK_NEVER)
			version->promised = run->disk->now;
	}
}

static void register_add(struct sim_run *run, u32 id, const char *path)
{
	struct file_register *file = calloc(1, sizeof(*file));
	u32 i;

	if (!file || run->registers->count == REGISTERS_MAX)
		abort();
	run->registers->files[run->registers->count++] = file;
	file->id = id;
	memset(file->newest, 0xff, sizeof(file->newest));
	if (node_walk(run->volume, path, &file->node))
		sim_fail(run, "%s cannot be found", path);
	register_note(run, file);
	for (i = 0; i < file->count; i++)	/* nobody can lose that */
		file->versions[i].promised = 0;
}

void registers_begin(struct sim_run *run, const char *dir)
{
	const struct m_inode *inode;
	char path[SIM_PATH_MAX];
	u32 i;
	int err;

	registers_end(run);
	run->registers = calloc(1, sizeof(*run->registers));
	if (!run->registers)
		abort();
	snprintf(run->registers->name, sizeof(run->registers->name), "%s", dir);
	run->registers->dir = model_lookup(run->state, dir, &err);
	inode = run->state->inodes[run->registers->dir];
	for (i = 0; i < inode->entry_count && !run->failed; i++) {
		snprintf(path, sizeof(path), "%.20s/%.40s", dir, inode->entries[i].name);
		register_add(run, inode->entries[i].id, path);
	}
}

static void registers_poll(struct sim_run *run)
{
	u32 i;

	for (i = 0; run->registers && i < run->registers->count; i++) {
		struct file_register *file = run->registers->files[i];

		file->lossy |= file->node && tux3_losses(file->node);
	}
}

void registers_closing(struct sim_run *run)
{
	u32 i;

	registers_poll(run);
	for (i = 0; run->registers && i < run->registers->count; i++)
		run->registers->files[i]->lossy |= run->disk->bad_count;
}

void registers_close(struct sim_run *run)
{
	u32 i;

	for (i = 0; run->registers && i < run->registers->count; i++) {
		struct file_register *file = run->registers->files[i];

		if (file->node)
			tux3_node_put(file->node, 1);
		file->node = NULL;
	}
}

void registers_end(struct sim_run *run)
{
	u32 i;

	for (i = 0; run->registers && i < run->registers->count; i++) {
		free(run->registers->files[i]->versions);
		free(run->registers->files[i]);
	}
	free(run->registers);
	run->registers = NULL;
}

void registers_see_bad(struct sim_run *run)
{
	if (run->registers)
		run->registers->was_bad |= run->disk->bad_count;
}

void registers_before(struct sim_run *run, const struct sim_op *op)
{
	struct file_register *file = op->kind == SIM_UNLINK ? register_at(run, op->a) : NULL;

	registers_see_bad(run);
	if (!file || !file->node)
		return;
	file->lossy |= run->registers->was_bad;		/* nobody hears of what is lost of it now */
	tux3_node_put(file->node, 1);
	file->node = NULL;
}

bool registers_may_fail(const struct sim_run *run, const struct sim_op *op)
{
	int err;
	const char *name;

	return run->registers && run->registers->was_bad && model_parent(run->state, op->a, &name, &err) == run->registers->dir;
}

int registers_tell(const struct sim_run *run, int err)
{
	return err == -EIO && run->registers && run->registers->was_bad ? 0 : err;
}

/* An end that cannot go now begins with a whole block, and with what was removed before it: there the file ends. */
static void register_note_end(struct sim_run *run, struct file_register *file, const struct sim_op *op, s64 result)
{
	u64 size = run->state->inodes[file->id]->size, end;

	if (result || (op->kind != SIM_TRUNCATE && (op->kind != SIM_FALLOCATE || !(op->mode & ~FALLOC_FL_KEEP_SIZE))))
		return;
	end = round_up(op->kind == SIM_TRUNCATE ? op->len : op->offset, run->params->block_size);
	if (op->kind == SIM_TRUNCATE || end < size)
		version_add(run, file, SECTORS, end);
}

void registers_after(struct sim_run *run, const struct sim_op *op, s64 result)
{
	struct file_register *file = register_at(run, op->a);
	const char *name;
	int err;

	if (!run->registers)
		return;
	registers_poll(run);
	if (!file && op->kind == SIM_CREATE && !result && model_parent(run->state, op->a, &name, &err) == run->registers->dir) {
		register_add(run, model_lookup(run->state, op->a, &err), op->a);
		return;
	}
	if (!file)
		return;
	register_note_end(run, file, op, result);
	register_note(run, file);
	if (op->kind != SIM_FSYNC && op->kind != SIM_FDATASYNC)
		return;
	if (!result)
		register_promise(run, file);
	else
		file->told = run->op_index;
}

/* ---- what is there ---- */

struct register_look {
	struct file_register *file;
	struct tux3_node *node;
	const char *path;
	u64 at;			/* event until which was promised */
	bool newest;		/* it must hold what came last */
	bool may_fail;
	u64 *values;		/* what was found, or NULL */
	struct difference *diff;
};

static bool is_promised(const struct register_look *look, const struct version *version)
{
	return version->promised <= look->at;
}

/* Which one is it?  NULL: none that may be there. */
static const struct version *find_version(const struct register_look *look, u32 at, const void *data, u64 size)
{
	u32 i = look->file->newest[at];

	for (; i != ~0u; i = look->file->versions[i].before) {
		const struct version *version = &look->file->versions[i];

		if (at == SECTORS ? version->value == size :
		    version->value ? pattern_compare(data, version->value, (u64)at * DISK_SECTOR, DISK_SECTOR) == DISK_SECTOR :
				     zero_compare(data, DISK_SECTOR) == DISK_SECTOR)
			return version;
		if (look->newest || is_promised(look, version))
			break;
	}
	return NULL;
}

static void tell_sector(const struct register_look *look, u32 at, const u8 *data)
{
	const struct version *newest = &look->file->versions[look->file->newest[at]];
	struct register_look any = { .file = look->file };
	const struct version *is = find_version(&any, at, data, 0);

	note_difference(look->diff, "%s: sector %u is %s (%#x), of operation %u; of %u to %u may be there: %#x, that is %s", look->path, at,
			!is ? "what was never there" : is_promised(look, is) ? "promised" : "old", data[0],
			is ? is->op : 0, 0, newest->op, newest->value ? pattern_byte(newest->value, (u64)at * DISK_SECTOR) : 0,
			is_promised(look, newest) ? "promised" : "not promised");
}

static void look_at_sectors(struct register_look *look, u64 from, u64 len, const u8 *data)
{
	u64 at;

	for (at = from; at < from + len; at += DISK_SECTOR) {
		const struct version *version = find_version(look, at / DISK_SECTOR, data + (at - from), 0);

		if (!version)
			tell_sector(look, at / DISK_SECTOR, data + (at - from));
		else if (look->values)
			look->values[at / DISK_SECTOR] = version->value;
	}
}

static void look_at_data(struct register_look *look, u64 size, u8 *buffer)
{
	u64 from, step = SIM_BUFFER / 2;
	ssize_t got;

	for (from = 0; from < size && !look->diff->count; from += got) {
		u64 len = min_t(u64, min(step, size - from), step == DISK_PAGE ? DISK_PAGE - from % DISK_PAGE : step);

		got = tux3_read(look->node, buffer, len, from);
		if (got == (ssize_t)len) {
			look_at_sectors(look, from, len, buffer);
		} else if (got > 0 && got % DISK_SECTOR == 0 && look->may_fail) {
			look_at_sectors(look, from, got, buffer);
		} else if (got == -EIO && look->may_fail) {
			got = step == DISK_PAGE ? len : 0;
			step = DISK_PAGE;
		} else {
			note_difference(look->diff, "%s: read of %llu bytes at %llu returned %zd", look->path, len, from, got);
			got = len;
		}
	}
}

static void look_at_register(struct register_look *look, u8 *buffer)
{
	struct tux3_stat stat;
	int err = tux3_stat_node(look->node, &stat);

	if (err) {
		note_difference(look->diff, "%s: stat failed: %d", look->path, err);
		return;
	}
	if (!find_version(look, SECTORS, NULL, stat.size)) {
		note_difference(look->diff, "%s: size is %llu, expected %llu or so", look->path, (u64)stat.size,
				look->file->versions[look->file->newest[SECTORS]].value);
		return;
	}
	if (look->values)
		look->values[SECTORS] = stat.size;
	look_at_data(look, stat.size, buffer);
}

static bool register_path(const struct sim_run *run, const struct m_state *state, u32 id, char *path)
{
	const struct m_inode *dir = run->registers->dir < state->count ? state->inodes[run->registers->dir] : NULL;
	u32 i;

	for (i = 0; dir && i < dir->entry_count; i++) {
		if (dir->entries[i].id != id)
			continue;
		snprintf(path, SIM_PATH_MAX, "%.20s/%.40s", run->registers->name, dir->entries[i].name);
		return true;
	}
	return false;
}

void registers_compare(struct sim_run *run, struct difference *diff)
{
	char path[SIM_PATH_MAX];
	u32 i;

	registers_poll(run);
	for (i = 0; i < run->registers->count && !diff->count; i++) {
		struct register_look look = {
			.file = run->registers->files[i], .path = path, .at = PROMISED, .diff = diff,
			.newest = !run->registers->files[i]->lossy, .may_fail = run->registers->was_bad,
		};
		int err;

		if (!register_path(run, run->state, look.file->id, path))
			continue;
		err = node_walk(run->volume, path, &look.node);
		if (err && !(err == -EIO && look.may_fail))
			note_difference(diff, "%s: lookup failed: %d", path, err);
		if (err)
			continue;
		look_at_register(&look, run->buffer);
		tux3_node_put(look.node, 1);
	}
}

void registers_loosen(const struct sim_run *run, struct m_state *state)
{
	u32 i, id;

	for (i = 0; run->registers && i < run->registers->count; i++) {
		id = run->registers->files[i]->id;
		if (id < state->count && state->inodes[id])
			model_change(state, id)->loose = true;
	}
}

/* The model's file becomes what was found. */
static void register_put(struct m_inode *inode, const u64 *values, const struct tux3_stat *stat)
{
	u64 sectors = values[SECTORS] / DISK_SECTOR, i, end;

	model_punch(inode, 0, ~0ULL);
	for (i = 0; i < sectors; i = end) {
		for (end = i + 1; end < sectors && values[end] == values[i]; end++)
			;
		if (values[i])
			model_put_extent(inode, i * DISK_SECTOR, end * DISK_SECTOR, values[i]);
	}
	inode->size = values[SECTORS];
	inode->mtime = stat->mtime.tv_sec * 1000000000ULL + stat->mtime.tv_nsec;
	inode->ctime = stat->ctime.tv_sec * 1000000000ULL + stat->ctime.tv_nsec;
	inode->mtime_low = inode->mtime_high = inode->ctime_low = inode->ctime_high = 0;
}

static void register_settle(struct sim_run *again, struct register_look *look, struct m_state *state)
{
	struct tux3_stat stat;

	if (node_walk(again->volume, look->path, &look->node))
		return;		/* comparing tells */
	look_at_register(look, again->buffer);
	if (!look->diff->count && !tux3_stat_node(look->node, &stat))
		register_put(model_change(state, look->file->id), look->values, &stat);
	tux3_node_put(look->node, 1);
}

bool registers_settle(struct sim_run *run, struct sim_run *again, struct m_state *state, u64 acked_at, struct difference *diff)
{
	u64 *values = calloc(SECTORS + 1, sizeof(*values));
	char path[SIM_PATH_MAX];
	u32 i;

	if (!values)
		abort();
	diff->count = diff->used = 0;
	for (i = 0; run->registers && i < run->registers->count && !diff->count; i++) {
		struct register_look look = {
			.file = run->registers->files[i], .path = path, .at = acked_at, .values = values, .diff = diff,
		};

		if (look.file->lossy && register_path(run, state, look.file->id, path) && look.file->id < state->count &&
		    state->inodes[look.file->id])
			register_settle(again, &look, state);
	}
	free(values);
	return !diff->count;
}
