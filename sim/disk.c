/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The modelled disk: see disk.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "disk.h"

#define ARENA_BYTES (256u << 10)

/* ---- tables of pages ---- */

static void pages_init(struct disk_pages *pages, u64 size_bytes)
{
	u64 span = (u64)DISK_CHUNK * DISK_PAGE;

	pages->count = (size_bytes + span - 1) / span;
	pages->chunks = calloc(pages->count, sizeof(*pages->chunks));
	if (!pages->chunks)
		abort();
}

static void pages_exit(struct disk_pages *pages)
{
	u64 i;

	for (i = 0; i < pages->count; i++)
		free(pages->chunks[i]);
	free(pages->chunks);
}

static u8 *pages_get(const struct disk_pages *pages, u64 page)
{
	u8 **chunk = pages->chunks[page / DISK_CHUNK];

	return chunk ? chunk[page % DISK_CHUNK] : NULL;
}

static u8 **pages_slot(struct disk_pages *pages, u64 page)
{
	u8 ***chunk = &pages->chunks[page / DISK_CHUNK];

	if (!*chunk)
		*chunk = calloc(DISK_CHUNK, sizeof(**chunk));
	if (!*chunk)
		abort();
	return &(*chunk)[page % DISK_CHUNK];
}

/* What is not in from is not in to either: a table only grows. */
static void pages_copy(struct disk_pages *to, const struct disk_pages *from)
{
	u64 i;

	for (i = 0; i < from->count; i++)
		if (from->chunks[i])
			memcpy(pages_slot(to, i * DISK_CHUNK), from->chunks[i], DISK_CHUNK * sizeof(*from->chunks[i]));
}

static void *disk_alloc(struct sim_disk *disk, size_t len)
{
	struct disk_arena *arena = disk->arena;
	void *ptr;

	len = (len + 15) & ~(size_t)15;
	if (!arena || arena->used + len > arena->size) {
		size_t size = len > ARENA_BYTES ? len : ARENA_BYTES;

		arena = malloc(sizeof(*arena) + size);
		if (!arena)
			abort();
		arena->next = disk->arena;
		arena->used = 0;
		arena->size = size;
		disk->arena = arena;
	}
	ptr = arena->data + arena->used;
	arena->used += len;
	return ptr;
}

static void disk_complain(struct sim_disk *disk, const char *what, u64 offset)
{
	if (!disk->complaint[0])
		snprintf(disk->complaint, sizeof(disk->complaint), "%s (byte %llu of the device)",
			 what, (unsigned long long)offset);
}

/* Does this one fail?  seen counts the calls of its kind. */
static bool disk_fails(struct sim_disk *disk, u64 *seen, u64 at)
{
	if (disk->faults_paused)
		return false;
	++*seen;
	if (!at || (disk->faults.sticky ? *seen < at : *seen != at))
		return false;
	disk->faults_hit++;
	return true;
}

/* Put sectors [from, to) of a write on a page table; the pages come from arena_of. */
static void disk_put_sectors(struct sim_disk *arena_of, struct disk_pages *pages, const struct disk_write *write,
			     u32 from, u32 to)
{
	while (from < to) {
		u64 at = write->offset + (u64)from * DISK_SECTOR;
		u32 in_page = at % DISK_PAGE;
		u32 bytes = DISK_PAGE - in_page;
		u8 **page = pages_slot(pages, at / DISK_PAGE);

		if (bytes > (to - from) * DISK_SECTOR)
			bytes = (to - from) * DISK_SECTOR;
		if (bytes == DISK_PAGE) {
			*page = write->data + (u64)from * DISK_SECTOR;
		} else {
			u8 *merged = disk_alloc(arena_of, DISK_PAGE);

			if (*page)
				memcpy(merged, *page, DISK_PAGE);
			else
				memset(merged, 0, DISK_PAGE);
			memcpy(merged + in_page, write->data + (u64)from * DISK_SECTOR, bytes);
			*page = merged;
		}
		from += bytes / DISK_SECTOR;
	}
}

static void disk_put(struct sim_disk *arena_of, struct disk_pages *pages, const struct disk_write *write)
{
	disk_put_sectors(arena_of, pages, write, 0, write->len / DISK_SECTOR);
}

/* Some of the sectors of a write, as a power cut in its middle leaves them.  Returns a digest. */
static u64 disk_put_torn(struct sim_disk *arena_of, struct disk_pages *pages, const struct disk_write *write,
			 struct rng *rng)
{
	u32 sectors = write->len / DISK_SECTOR, i;
	u32 at = rng_below(rng, sectors + 1);
	u64 digest = 0;

	switch (rng_below(rng, 3)) {
	case 0:
		disk_put_sectors(arena_of, pages, write, 0, at);
		return at;
	case 1:
		disk_put_sectors(arena_of, pages, write, at, sectors);
		return ~(u64)at;
	default:
		for (i = 0; i < sectors; i++) {
			if (rng_one_in(rng, 2))
				continue;
			disk_put_sectors(arena_of, pages, write, i, i + 1);
			digest = rng_hash(digest, i + 1);
		}
		return digest;
	}
}

static void disk_complete(struct sim_disk *disk, struct disk_write *write)
{
	u64 at = 0;
	u32 i;

	for (i = 0; i < write->vecs; at += write->vec[i++].iov_len)
		if (memcmp(write->data + at, write->vec[i].iov_base, write->vec[i].iov_len))
			disk_complain(disk, "bytes changed while they were being written", write->offset + at);
	free(write->vec);
	write->vec = NULL;
	write->vecs = 0;
	write->completed = true;
	if (!write->failed && (write->flags & DEVICE_FUA || !disk->settings.volatile_cache))
		write->durable = disk->now;
	io_wait_end(write->wait, write->failed ? -EIO : 0);
	write->wait = NULL;
}

/* Complete pending writes: all, or some. */
static void disk_complete_some(struct sim_disk *disk, bool all)
{
	u32 i;

	for (i = disk->first_pending; i < disk->write_count; i++) {
		struct disk_write *write = &disk->writes[i];

		if (!write->completed && (all || rng_one_in(&disk->rng, 3)))
			disk_complete(disk, write);
		if (write->completed && i == disk->first_pending)
			disk->first_pending++;
	}
}

/* With the mutex. */
static bool disk_is_bad(struct sim_disk *disk, u64 at, u64 end)
{
	u32 i;

	for (i = 0; i < disk->bad_count && !disk->faults_paused; i++) {
		if (disk->bad[i] * DISK_PAGE < end && at < (disk->bad[i] + 1) * DISK_PAGE) {
			disk->bad_hits++;
			return true;
		}
	}
	return false;
}

/* With the mutex: these bytes are written. */
static void disk_not_bad(struct sim_disk *disk, u64 at, u64 end)
{
	u32 i = disk->bad_count;

	while (i-- > 0)
		if (disk->bad[i] * DISK_PAGE < end && at < (disk->bad[i] + 1) * DISK_PAGE)
			disk->bad[i] = disk->bad[--disk->bad_count];
}

/* With the mutex. */
static int disk_read_one(struct sim_disk *disk, u64 addr, u32 count, void *data)
{
	u64 at = addr * disk->dev.block_size, end = at + (u64)count * disk->dev.block_size;
	u32 len;
	int err = 0;

	if (disk->frozen || disk_fails(disk, &disk->reads_seen, disk->faults.read_at) || disk_is_bad(disk, at, end))
		err = -EIO;
	for (; !err && at < end; at += len, data = (u8 *)data + len) {
		const u8 *page = pages_get(&disk->pages, at / DISK_PAGE);

		/* What was written in one piece lies in one piece, and so does what was never written. */
		for (len = DISK_PAGE; at + len < end; len += DISK_PAGE)
			if (pages_get(&disk->pages, (at + len) / DISK_PAGE) != (page ? page + len : NULL))
				break;
		if (page)
			memcpy(data, page, len);
		else
			memset(data, 0, len);
	}
	return err;
}

static int disk_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct sim_disk *disk = container_of(dev, struct sim_disk, dev);
	int err;

	pthread_mutex_lock(&disk->mutex);
	disk->read_passes++;
	err = disk_read_one(disk, addr, count, data);
	pthread_mutex_unlock(&disk->mutex);
	return err;
}

static void disk_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	struct sim_disk *disk = container_of(dev, struct sim_disk, dev);
	u32 i;

	pthread_mutex_lock(&disk->mutex);
	disk->read_passes++;
	for (i = 0; i < count; i++)
		reads[i].err = disk_read_one(disk, reads[i].addr, reads[i].count, reads[i].data);
	pthread_mutex_unlock(&disk->mutex);
}

static struct disk_write *disk_new_write(struct sim_disk *disk)
{
	if (disk->write_count == disk->write_capacity) {
		disk->write_capacity = disk->write_capacity ? 2 * disk->write_capacity : 64;
		disk->writes = realloc(disk->writes, disk->write_capacity * sizeof(*disk->writes));
		if (!disk->writes)
			abort();
	}
	return memset(&disk->writes[disk->write_count++], 0, sizeof(*disk->writes));
}

static void disk_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		       unsigned int flags, struct io_wait *wait)
{
	struct sim_disk *disk = container_of(dev, struct sim_disk, dev);
	struct disk_write *write;
	u32 i, len = 0;

	io_wait_begin(wait);
	if (disk->before)
		disk->before(disk->before_ctx);
	pthread_mutex_lock(&disk->mutex);
	if (disk->frozen) {
		pthread_mutex_unlock(&disk->mutex);
		io_wait_end(wait, -EIO);
		return;
	}
	write = disk_new_write(disk);
	for (i = 0; i < vecs; i++)
		write->len += vec[i].iov_len;
	write->offset = addr * dev->block_size;
	write->flags = flags;
	write->data = disk_alloc(disk, write->len);
	for (i = 0; i < vecs; len += vec[i++].iov_len)
		memcpy(write->data + len, vec[i].iov_base, vec[i].iov_len);
	write->vec = malloc(vecs * sizeof(*vec));
	if (!write->vec)
		abort();
	memcpy(write->vec, vec, vecs * sizeof(*vec));
	write->vecs = vecs;
	write->wait = wait;
	disk_not_bad(disk, write->offset, write->offset + write->len);
	write->issued = ++disk->now;
	write->durable = DISK_NEVER;
	write->failed = disk_fails(disk, &disk->writes_seen, disk->faults.write_at);
	write->lost = disk->write_count == disk->settings.lose_write;
	if (write->lost)
		;
	else if (!write->failed)
		disk_put(disk, &disk->pages, write);
	else
		disk_put_torn(disk, &disk->pages, write, &disk->rng);
	disk_complete_some(disk, !disk->settings.defer);
	pthread_mutex_unlock(&disk->mutex);
}

/* The canaries. */
static bool disk_ignores_flush(const struct sim_disk *disk)
{
	u32 magic = disk->settings.unflushed_magic;

	if (disk->settings.ignore_flush)
		return true;
	return magic && disk->write_count && !memcmp(disk->writes[disk->write_count - 1].data, &magic, sizeof(magic));
}

static int disk_flush(struct tux3_device *dev)
{
	struct sim_disk *disk = container_of(dev, struct sim_disk, dev);
	int err = 0;
	u32 i;

	if (disk->before)
		disk->before(disk->before_ctx);
	pthread_mutex_lock(&disk->mutex);
	if (disk->frozen || disk_fails(disk, &disk->flushes_seen, disk->faults.flush_at)) {
		/* As in Linux: what was in the cache is not tried again by a later flush. */
		for (i = 0; i < disk->write_count; i++)
			if (disk->writes[i].durable == DISK_NEVER)
				disk->writes[i].failed = true;
		err = -EIO;
		goto out;
	}
	++disk->now;
	++disk->flushes_done;
	for (i = disk->write_count; i-- > 0 && !disk_ignores_flush(disk);) {
		struct disk_write *write = &disk->writes[i];

		if (write->completed && !write->failed && write->durable == DISK_NEVER)
			write->durable = disk->now;
	}
	disk_complete_some(disk, false);
out:
	pthread_mutex_unlock(&disk->mutex);
	return err;
}

/* What is discarded holds nothing of value: any bytes will do, from now on or after a power cut, or the old ones. */
static int disk_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	struct sim_disk *disk = container_of(dev, struct sim_disk, dev);
	u64 offset = addr * dev->block_size, end = offset + count * dev->block_size;
	static const u8 poison[64 * DISK_PAGE] = { [0 ... 64 * DISK_PAGE - 1] = 0xd1 };

	pthread_mutex_lock(&disk->mutex);
	if (disk->frozen) {
		pthread_mutex_unlock(&disk->mutex);
		return -EIO;
	}
	disk_not_bad(disk, offset, end);
	while (offset < end) {
		struct disk_write *write = disk_new_write(disk);

		write->offset = offset;
		write->len = min_t(u64, end - offset, sizeof(poison));
		write->data = (u8 *)poison;
		write->issued = ++disk->now;
		write->durable = disk->settings.volatile_cache ? DISK_NEVER : disk->now;
		write->completed = true;
		disk_put(disk, &disk->pages, write);
		offset += write->len;
	}
	pthread_mutex_unlock(&disk->mutex);
	return 0;
}

static void disk_kick(struct tux3_device *dev)
{
	struct sim_disk *disk = container_of(dev, struct sim_disk, dev);

	pthread_mutex_lock(&disk->mutex);
	disk_complete_some(disk, true);
	pthread_mutex_unlock(&disk->mutex);
}

static const struct tux3_device_ops disk_ops = {
	.read = disk_read,
	.read_many = disk_read_many,
	.write = disk_write,
	.flush = disk_flush,
	.discard = disk_discard,
	.kick = disk_kick,
};

void disk_init(struct sim_disk *disk, const struct disk_settings *settings)
{
	memset(disk, 0, sizeof(*disk));
	disk->settings = *settings;
	disk->dev.ops = &disk_ops;
	disk->dev.size_bytes = settings->size_bytes;
	disk->dev.block_size = 4096;
	disk->dev.volatile_cache = settings->volatile_cache;
	disk->dev.has_fua = settings->has_fua;
	disk->dev.name = "sim";
	pages_init(&disk->pages, settings->size_bytes);
	pages_init(&disk->base, settings->size_bytes);
	disk->rng.state = settings->seed;
	pthread_mutex_init(&disk->mutex, NULL);
}

void disk_exit(struct sim_disk *disk)
{
	struct disk_arena *arena, *next;
	u32 i;

	for (i = disk->first_pending; i < disk->write_count; i++)
		free(disk->writes[i].vec);
	for (arena = disk->arena; arena; arena = next) {
		next = arena->next;
		free(arena);
	}
	pages_exit(&disk->pages);
	pages_exit(&disk->base);
	free(disk->writes);
	pthread_mutex_destroy(&disk->mutex);
}

void disk_begin_trace(struct sim_disk *disk)
{
	disk_complete_some(disk, true);
	pages_copy(&disk->base, &disk->pages);
	disk->write_count = 0;
	disk->first_pending = 0;
}

void disk_set_faults(struct sim_disk *disk, const struct disk_faults *faults)
{
	pthread_mutex_lock(&disk->mutex);
	disk->faults = faults ? *faults : (struct disk_faults){ 0 };
	disk->reads_seen = disk->writes_seen = disk->flushes_seen = 0;
	pthread_mutex_unlock(&disk->mutex);
}

void disk_pause_faults(struct sim_disk *disk, bool on)
{
	pthread_mutex_lock(&disk->mutex);
	disk->faults_paused = on;
	pthread_mutex_unlock(&disk->mutex);
}

void disk_turn_bad(struct sim_disk *disk, u64 page)
{
	pthread_mutex_lock(&disk->mutex);
	if (disk->bad_count < DISK_BAD_MAX)
		disk->bad[disk->bad_count++] = page;
	pthread_mutex_unlock(&disk->mutex);
}

void disk_mend(struct sim_disk *disk)
{
	pthread_mutex_lock(&disk->mutex);
	disk->bad_count = 0;
	pthread_mutex_unlock(&disk->mutex);
}

u64 disk_read_passes(struct sim_disk *disk)
{
	u64 passes;

	pthread_mutex_lock(&disk->mutex);
	passes = disk->read_passes;
	pthread_mutex_unlock(&disk->mutex);
	return passes;
}

u64 disk_now(struct sim_disk *disk)
{
	u64 now;

	pthread_mutex_lock(&disk->mutex);
	now = disk->now;
	pthread_mutex_unlock(&disk->mutex);
	return now;
}

static bool disk_was_durable(const struct disk_write *write, const struct disk_cut *cut)
{
	return write->durable <= cut->at;
}

u32 disk_count_unflushed(const struct sim_disk *disk, const struct disk_cut *cut)
{
	u32 i, count = 0;

	for (i = 0; i < cut->issued; i++)
		count += !disk_was_durable(&disk->writes[i], cut);
	return count;
}

/* How the unflushed writes of an image are chosen. */
struct disk_choice {
	unsigned int kind;	/* 0: each with chance 1/2; 1: all but `one`; 2: only `one`; 3: all */
	u32 one, torn;		/* index among the unflushed ones; torn ~0: none */
};

static struct disk_choice disk_choose(u32 unflushed, struct rng *rng, bool torn)
{
	struct disk_choice choice = { .kind = 3, .torn = ~0u };

	if (!rng || !unflushed)
		return choice;
	choice.kind = rng_below(rng, 3);
	choice.one = rng_below(rng, unflushed);
	if (torn) {
		/* The newest writes are the likeliest to be torn. */
		choice.torn = rng_one_in(rng, 2) ? unflushed - 1 : rng_below(rng, unflushed);
		if (rng_one_in(rng, 2))
			choice.kind = 3;
	}
	return choice;
}

/* The write that the canary leaves out; past the end: none. */
static u32 disk_forgotten(const struct sim_disk *disk, const struct disk_cut *cut, u32 magic)
{
	u32 i = cut->issued;

	while (magic && i-- > 0)
		if (disk_was_durable(&disk->writes[i], cut) && !memcmp(disk->writes[i].data, &magic, sizeof(magic)))
			return i;
	return cut->issued;
}

u64 disk_init_image(struct sim_disk *image, struct sim_disk *parent, const struct disk_settings *settings,
		    const struct disk_cut *cut, struct rng *rng, bool torn)
{
	u32 unflushed = rng ? disk_count_unflushed(parent, cut) : 0, n = 0, i;
	u32 forgotten = disk_forgotten(parent, cut, settings->forget_magic);
	struct disk_choice choice = disk_choose(unflushed, rng, torn);
	u64 digest = 0;

	disk_init(image, settings);
	pages_copy(&image->pages, &parent->base);
	for (i = 0; i < cut->issued; i++) {
		const struct disk_write *write = &parent->writes[i];
		bool take;

		if (write->lost || i == forgotten)
			continue;
		if (!rng || disk_was_durable(write, cut)) {
			disk_put(image, &image->pages, write);
			continue;
		}
		if (n == choice.torn) {
			digest = rng_hash(digest, disk_put_torn(image, &image->pages, write, rng) ^ 2);
			n++;
			continue;
		}
		take = choice.kind == 3 || (choice.kind == 0 ? rng_one_in(rng, 2) :
					    (choice.kind == 2) == (n == choice.one));
		if (take)
			disk_put(image, &image->pages, write);
		digest = take ? digest : rng_hash(digest, n + 1);
		n++;
	}
	pages_copy(&image->base, &image->pages);
	return digest;
}

void disk_print_trace(const struct sim_disk *disk, u32 from)
{
	u32 i;

	for (i = from; i < disk->write_count; i++) {
		const struct disk_write *write = &disk->writes[i];
		char durable[32] = "never";

		if (write->durable != DISK_NEVER)
			snprintf(durable, sizeof(durable), "at %llu", (unsigned long long)write->durable);
		printf("  write %u: block %llu, %u bytes, %.4s%s, issued at %llu, durable %s\n", i + 1,
		       (unsigned long long)(write->offset / disk->dev.block_size), write->len,
		       write->data[0] >= 'A' && write->data[0] <= 'Z' ? (const char *)write->data : "data",
		       write->flags & DEVICE_FUA ? ", FUA" : "", (unsigned long long)write->issued, durable);
	}
}
