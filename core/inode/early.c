// SPDX-License-Identifier: GPL-2.0-or-later
/* Data that stays where an fsync has put it: see early.h.  inode->lock; whether there is any is also looked at without it. */
#include "core/volume.h"
#include "core/inode/early.h"
#include "core/inode/inode.h"

#define RUN_BLOCKS 1024u	/* so that its checksums are one page, mostly */

struct early_run *early_new(struct early_run *next, u64 delta, u64 block, u64 addr, u32 count, const __le32 *csum)
{
	struct early_run *run;
	u32 at, part;

	for (at = 0; at < count; at += part) {
		part = min(count - at, RUN_BLOCKS);
		run = kmalloc(sizeof(*run) + part * sizeof(*csum), GFP_NOFS | __GFP_NOWARN);
		if (!run)
			break;
		*run = (struct early_run){ .next = next, .delta = delta, .block = block + at, .addr = addr + at, .count = part };
		memcpy(run->csum, csum + at, part * sizeof(*csum));
		next = run;
	}
	return next;
}

void early_free(struct early_run *runs)
{
	struct early_run *next;

	for (; runs; runs = next) {
		next = runs->next;
		kfree(runs);
	}
}

static struct early_run **early_end(struct tux3_inode *inode)
{
	struct early_run **link = &inode->early;

	while (*link)
		link = &(*link)->next;
	return link;
}

/* Another intent may have been begun since, which has dropped less than has changed; or all may have changed. */
void early_add(struct tux3_inode *inode, u64 told, struct early_run *runs)
{
	spin_lock(&inode->lock);
	if (told && READ_ONCE(inode->told) == told) {
		WRITE_ONCE(*early_end(inode), runs);
		runs = NULL;
	}
	spin_unlock(&inode->lock);
	early_free(runs);
}

/* Of a run, blocks [from, end) go, and what is on the shorter side of them. */
static void early_cut(struct early_run *run, u64 from, u64 end)
{
	u64 run_end = run->block + run->count;
	u32 before = from > run->block ? min(from, run_end) - run->block : 0;
	u32 after = end < run_end ? run_end - max(end, run->block) : 0;

	if (before >= after) {
		run->count = before;
		return;
	}
	run->first += run->count - after;
	run->addr += run->count - after;
	run->block += run->count - after;
	run->count = after;
}

void early_drop(struct tux3_inode *inode, u64 from, u64 end)
{
	struct early_run **link = &inode->early, *run;

	lockdep_assert_held(&inode->lock);
	while ((run = *link)) {
		if (from < run->block + run->count && end > run->block)
			early_cut(run, from, end);
		if (run->count) {
			link = &run->next;
			continue;
		}
		WRITE_ONCE(*link, run->next);
		kfree(run);
	}
}

/* The run of the delta that has the block; if none has it *count ends where the next one begins. */
static struct early_run *early_find(struct tux3_inode *inode, u64 delta, u64 block, u32 *count)
{
	struct early_run *run;

	lockdep_assert_held(&inode->lock);
	for (run = inode->early; run; run = run->next) {
		if (run->delta != delta || block >= run->block + run->count)
			continue;
		if (block >= run->block)
			return run;
		*count = min_t(u64, *count, run->block - block);
	}
	return NULL;
}

bool early_look(struct tux3_inode *inode, u64 delta, u64 block, u32 *count, u64 *addr, __le32 *csum, u32 max)
{
	struct early_run *run;

	if (likely(!READ_ONCE(inode->early)))
		return false;
	spin_lock(&inode->lock);
	if (!READ_ONCE(inode->told))
		early_drop(inode, 0, DATA_END);
	else if (likely(!inode->vol->opts.keep_changed))
		early_drop(inode, inode->fresh, inode->fresh_end);
	run = early_find(inode, delta, block, count);
	if (run) {
		u32 at = block - run->block;

		*count = min3(*count, run->count - at, max);
		*addr = run->addr + at;
		memcpy(csum, run->csum + run->first + at, *count * sizeof(*csum));
	}
	spin_unlock(&inode->lock);
	return run;
}

void early_done(struct tux3_inode *inode, u64 delta)
{
	struct early_run **link = &inode->early, *run;

	if (likely(!READ_ONCE(inode->early)))
		return;
	spin_lock(&inode->lock);
	while ((run = *link)) {
		if (run->delta > delta) {
			link = &run->next;
			continue;
		}
		WRITE_ONCE(*link, run->next);
		kfree(run);
	}
	spin_unlock(&inode->lock);
}
