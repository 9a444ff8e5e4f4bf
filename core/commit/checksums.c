// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checksums of the data that a commit writes, by several CPUs.
 *
 * They are most of what the back end's CPU does for a large file: it finds places, makes bios and logs by the extent, but has to
 * go to each byte for this.  Data of a run is constant while its host writes it (host.h), and what is submitted needs no checksum
 * yet, only the record of its extent does.  So the host submits, adds what it has submitted here, and in the end asks for the
 * checksums of all of it.  Others begin with them meanwhile.
 *
 * There is no handing out: whoever has time takes the next pieces, the back end as well when it has submitted all.  A helper that
 * comes late, for want of a CPU or of memory for its thread, finds nothing to do and was not waited for; only pieces that
 * somebody has taken are.  So nothing depends on helpers, and a machine without a free CPU loses but their wakeups: little
 * runs do not call them.  Their priority is high, for the back end must not wait for one that was preempted with pieces in hand.
 *
 * Locking: commit_mutex, and checksums.lock for what helpers look at.  Pieces are written before shared moves past them, under
 * the lock, and what helpers write (csum[]) before they count it as done, under the lock.
 */
#include "core/volume.h"
#include "core/log/log.h"
#include "core/commit/checksums.h"

#define SHARE_BYTES	(128u << 10)	/* for less nobody is called: a wakeup is some us, as are the checksums of so much */
#define TAKE_BYTES	(64u << 10)	/* taken at once */

struct checksum_piece {
	const void *data;
	__le32 *csum;
	u32 blocks;
};

static void compute(const struct checksums *sums, const struct checksum_piece *piece)
{
	const u8 *data = piece->data;
	u32 i;

	for (i = 0; i < piece->blocks; i++, data += sums->block_size)
		piece->csum[i] = cpu_to_le32(crc32c(~0u, data, sums->block_size));
}

/* Takes the next shared pieces, and computes them.  Returns how many blocks; 0: there were none. */
static u32 compute_next(struct checksums *sums)
{
	u32 first, end, blocks = 0, i;
	bool all;

	spin_lock(&sums->lock);
	first = end = sums->next;
	while (end < sums->shared && blocks * sums->block_size < TAKE_BYTES)
		blocks += sums->pieces[end++].blocks;
	sums->next = end;
	spin_unlock(&sums->lock);
	if (first == end)
		return 0;
	for (i = first; i < end; i++)
		compute(sums, &sums->pieces[i]);
	spin_lock(&sums->lock);
	sums->done += end - first;
	all = sums->done == sums->shared;
	spin_unlock(&sums->lock);
	if (all)
		wake_up(&sums->done_queue);
	return blocks;
}

static void checksums_help(struct work_struct *work)
{
	struct volume *vol = container_of(work, struct checksum_helper, work)->vol;
	u64 blocks = 0;
	u32 now;

	while ((now = compute_next(&vol->checksums))) {
		blocks += now;
		cond_resched();
	}
	count_add(vol, TUX3_COUNT_CHECKSUMS_HELPED, blocks);
}

static void checksums_share(struct checksums *sums)
{
	spin_lock(&sums->lock);
	sums->shared = sums->count;
	spin_unlock(&sums->lock);
	sums->unshared_blocks = 0;
}

static void add_piece(struct checksums *sums, const struct checksum_piece *piece)
{
	if (!sums->queue || WARN_ON_ONCE(sums->count == LOG_EXTENT_BLOCKS)) {
		compute(sums, piece);
		return;
	}
	sums->pieces[sums->count++] = *piece;
	sums->unshared_blocks += piece->blocks;
	if (sums->unshared_blocks * sums->block_size < SHARE_BYTES)
		return;
	checksums_share(sums);
	if (sums->helping < sums->helper_count)
		queue_work(sums->queue, &sums->helpers[sums->helping++].work);
}

void checksums_add(struct volume *vol, const void *data, u32 blocks, __le32 *csum)
{
	struct checksums *sums = &vol->checksums;
	u32 most = max(TAKE_BYTES / sums->block_size, 1u);

	lockdep_assert_held(&vol->delta.commit_mutex);
	while (blocks) {
		struct checksum_piece piece = { .data = data, .csum = csum, .blocks = min(blocks, most) };

		add_piece(sums, &piece);
		data = (const u8 *)data + piece.blocks * sums->block_size;
		csum += piece.blocks;
		blocks -= piece.blocks;
	}
}

static bool checksums_done(struct checksums *sums)
{
	bool done;

	spin_lock(&sums->lock);
	done = sums->done == sums->shared;
	spin_unlock(&sums->lock);
	return done;
}

void checksums_finish(struct volume *vol)
{
	struct checksums *sums = &vol->checksums;
	u32 i;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (likely(!sums->helping)) {
		for (i = 0; i < sums->count; i++)
			compute(sums, &sums->pieces[i]);
		sums->count = sums->unshared_blocks = 0;
		return;
	}
	checksums_share(sums);
	while (compute_next(sums))
		;
	wait_event(sums->done_queue, checksums_done(sums));
	spin_lock(&sums->lock);
	sums->shared = sums->next = sums->done = 0;
	spin_unlock(&sums->lock);
	sums->count = sums->helping = 0;
}

int checksums_init(struct volume *vol)
{
	struct checksums *sums = &vol->checksums;
	u32 i;

	sums->block_size = vol->block_size;
	spin_lock_init(&sums->lock);
	init_waitqueue_head(&sums->done_queue);
	sums->helper_count = min_t(u32, num_possible_cpus() - 1, CHECKSUM_HELPERS);
	/* Without a thread of the back end there are to be none at all. */
	if (vol->opts.manual || !sums->helper_count)
		return 0;
	for (i = 0; i < sums->helper_count; i++) {
		sums->helpers[i].vol = vol;
		INIT_WORK(&sums->helpers[i].work, checksums_help);
	}
	sums->pieces = kvmalloc(LOG_EXTENT_BLOCKS * sizeof(*sums->pieces), GFP_KERNEL);
	if (!sums->pieces)
		return -ENOMEM;
	sums->queue = alloc_workqueue("tux3-checksums", WQ_UNBOUND | WQ_HIGHPRI, CHECKSUM_HELPERS);
	return sums->queue ? 0 : -ENOMEM;
}

/* Who was called late may still come. */
void checksums_exit(struct volume *vol)
{
	if (vol->checksums.queue)
		destroy_workqueue(vol->checksums.queue);
	vol->checksums.queue = NULL;
	kvfree(vol->checksums.pieces);
	vol->checksums.pieces = NULL;
}
