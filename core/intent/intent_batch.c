// SPDX-License-Identifier: GPL-2.0-or-later
/* Requests that wait together are written together, as a batch of the area: see intent_fsync.c and intent.h. */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/delta/delta.h"
#include "core/data/data.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"
#include "core/intent/intent_request.h"

#define BATCH_REQUESTS	24u		/* each is one piece of a write, and so are the header blocks */
#define FAR_LEN		((u32)sizeof(__le64))	/* of the payload: where the data is, if that is not behind the headers */

struct intent_write {
	struct intent_batch place;
	u64 addr, life;			/* of its first block, of the area */
	bool large;			/* its data goes to the far area */
	u64 far;			/* of the first data block there; 0: that is behind the headers */
	u64 base;			/* the newest of the requests' */
	struct intent_request *requests[BATCH_REQUESTS];
	u32 count, closures, dirs, header_blocks, data_blocks;
	u32 len;			/* of the payload */
};

/* Who waits for it may free it from now on: it is in no list.  intent->lock held. */
static void request_end(struct intent_request *request, int err)
{
	request->err = err;
	request->done = true;
	complete(&request->wake);
}

static void request_written(struct intent *intent, struct intent_request *request, int err)
{
	bool left;

	spin_lock(&intent->lock);
	left = request->left;
	request_end(request, err);
	spin_unlock(&intent->lock);
	if (left)
		intent_request_free(request);
}

/*
 * Who wrote does not any more.  Who waits for a CPU in the middle of it is waited for by all others: so for one who may have to, a
 * worker writes.
 */
static void pass_on(struct intent *intent)
{
	struct intent_request *next;
	bool lacks_time;

	spin_lock(&intent->lock);
	next = list_first_entry_or_null(&intent->queue, struct intent_request, link);
	intent->writing = next;
	lacks_time = next && next->lacks_time;
	if (next && !lacks_time) {
		next->writes = true;
		complete(&next->wake);
	}
	spin_unlock(&intent->lock);
	if (lacks_time)
		queue_work(intent->writer, &intent->work);
}

/* Who waited for it is killed.  The others of the queue do not need it, but perhaps him. */
static void request_leave(struct intent *intent, struct intent_request *request)
{
	bool writing, writes;

	spin_lock(&intent->lock);
	writing = request->taken && !request->done;
	writes = request->writes && !request->done;
	request->left = writing;
	if (!request->taken && !request->done)
		list_del(&request->link);
	spin_unlock(&intent->lock);
	if (!writing)
		intent_request_free(request);
	if (writes)
		pass_on(intent);
}

/* Does nobody write, so that who waits for it is to, or the worker for him?  Or was he chosen before he came here? */
static bool request_begins(struct intent *intent, struct intent_request *request)
{
	bool begins, writes;

	spin_lock(&intent->lock);
	begins = !intent->writing && !request->done;
	if (begins) {
		intent->writing = true;
		request->writes = !request->lacks_time;
	}
	writes = request->writes;
	spin_unlock(&intent->lock);
	if (begins && !writes)
		queue_work(intent->writer, &intent->work);
	return writes;
}

/*
 * Does it need no writing (*err 0), or may it not be written any more?  intent->lock held.  -ESTALE: its delta is sealed, and
 * what is captured now would be of the next one.
 */
static bool request_is_over(struct volume *vol, struct intent_request *request, int *err)
{
	struct intent *intent = &vol->intent;

	lockdep_assert_held(&vol->intent.lock);
	*err = 0;
	if (request->delta <= READ_ONCE(vol->delta.committed))
		return true;
	if (intent->broken || !intent->place.addr || volume_error(vol) || READ_ONCE(vol->delta.paused) ||
	    READ_ONCE(vol->read_only))
		*err = -EAGAIN;
	else if (request->delta <= intent->sealed)
		*err = -ESTALE;
	return *err;
}

/* It was to be large when it was counted; a commit may have made all of that durable since. */
static bool request_is_far(const struct intent_request *request)
{
	return request->large && request->blocks;
}

/*
 * Is there room in half of the area for the batch, with this request?  Where it has none the request waits for the next.  So do
 * large ones, until what came before them is written.
 */
static bool write_has_room(const struct volume *vol, const struct intent_write *write, const struct intent_request *request)
{
	u32 header = DIV_ROUND_UP(FAR_LEN + write->len + request->len, intent_header_room(vol));
	u32 data = write->data_blocks + request->blocks;

	if (write->count == BATCH_REQUESTS || (request_is_far(request) && !write->large))
		return false;
	if (!write->large)
		return header + data <= vol->intent.place.blocks / 2;
	/* Of one delta: when that is durable its data may belong to files, and is not to be looked for any more. */
	return header <= vol->intent.place.blocks / 2 && data <= vol->intent.far.blocks / 2 &&
	       request->delta == write->requests[0]->delta;
}

/* Where each one's data will be, if that is in the far area. */
static void write_place(const struct intent_write *write)
{
	u64 addr = write->far;
	u32 i;

	for (i = 0; addr && i < write->count; i++) {
		write->requests[i]->far = addr;
		addr += write->requests[i]->blocks;
	}
}

/* As many as fit, with room in the ring for them; intent->lock held. */
static bool write_choose(struct volume *vol, struct intent_write *write)
{
	struct intent *intent = &vol->intent;
	struct intent_request *request, *next;
	int err;
	u32 i;

	lockdep_assert_held(&vol->intent.lock);
	list_for_each_entry_safe(request, next, &intent->queue, link) {
		if (request_is_over(vol, request, &err)) {
			list_del(&request->link);
			request_end(request, err);
			continue;
		}
		if (write->count && !write_has_room(vol, write, request))
			break;
		list_del(&request->link);
		request->taken = true;
		write->requests[write->count++] = request;
		write->base = max(write->base, request->base);
		write->closures += request->closure.names > 0;
		write->dirs += request->closure.dirs;
		write->len += request->len;
		write->data_blocks += request->blocks;
		write->large |= request_is_far(request);
	}
	if (!write->count)
		return false;
	write->len += write->large ? FAR_LEN : 0;
	write->header_blocks = DIV_ROUND_UP(write->len, intent_header_room(vol));
	if (intent_ring_add(vol, write->requests[write->count - 1]->delta,
			    write->header_blocks + (write->large ? 0 : write->data_blocks),
			    write->large ? write->data_blocks : 0, &write->place)) {
		write->addr = intent->place.addr + write->place.offset;
		write->far = write->place.far;
		write->life = intent->place.life;
		intent->writing_delta = write->far ? write->place.delta : 0;
		write_place(write);
		return true;
	}
	for (i = 0; i < write->count; i++)
		request_end(write->requests[i], -EAGAIN);
	return false;
}

/* Those that capture left out. */
static void request_checksum(struct intent_request *request)
{
	u32 block_size = request->vol->block_size, i, j, k;
	const u8 *data = request->data;

	for (i = 0; i < request->parts.count; i++) {
		struct disk_intent *intent = request->parts.part[i].intent;
		struct disk_intent_run *run = (struct disk_intent_run *)(intent + 1);

		for (j = 0; intent && j < le32_to_cpu(intent->runs); j++) {
			for (k = 0; k < le32_to_cpu(run->count); k++, data += block_size)
				run->csum[k] = cpu_to_le32(crc32c(~0u, data, block_size));
			run = (struct disk_intent_run *)intent_next_run(run);
		}
	}
}

/* To the payloads of the header blocks, from this byte of them on: where it ends. */
static u32 payload_put(struct volume *vol, u8 *header, u32 at, const void *data, u32 len)
{
	u32 room = intent_header_room(vol);
	const u8 *from = data;

	while (len) {
		u32 piece = min(len, room - at % room);

		memcpy(header + ((u64)(at / room) << vol->block_shift) + sizeof(struct disk_intents) + at % room, from, piece);
		from += piece;
		len -= piece;
		at += piece;
	}
	return at;
}

/* The intents one after the other. */
static void write_fill(struct volume *vol, const struct intent_write *write, u8 *header)
{
	__le64 far = cpu_to_le64(write->far);
	u32 at = write->far ? payload_put(vol, header, 0, &far, FAR_LEN) : 0, i;

	for (i = 0; i < write->count; i++) {
		request_checksum(write->requests[i]);
		at = payload_put(vol, header, at, write->requests[i]->intents, write->requests[i]->len);
	}
}

static void write_seal(struct volume *vol, const struct intent_write *write, u8 *header)
{
	u32 room = intent_header_room(vol), i;

	for (i = 0; i < write->header_blocks; i++) {
		struct disk_intents *block = (struct disk_intents *)(header + ((u64)i << vol->block_shift));

		block->magic = cpu_to_le32(TUX3_INTENT_MAGIC);
		block->volume_id = cpu_to_le64(vol->id);
		block->addr = cpu_to_le64(write->addr + i);
		block->life = cpu_to_le64(write->life);
		block->seq = cpu_to_le64(write->place.seq);
		block->index = cpu_to_le32(i);
		block->blocks = cpu_to_le32(write->header_blocks);
		block->data_blocks = cpu_to_le32(write->data_blocks | (write->far ? TUX3_INTENTS_FAR : 0));
		block->used = cpu_to_le32(min(room, write->len - i * room));
		block->base = cpu_to_le64(write->base);
		block->crc = cpu_to_le32(crc32c(~0u, block, vol->block_size));
	}
}

static int write_submit(struct volume *vol, const struct intent_write *write, u8 *header)
{
	struct kvec vec[BATCH_REQUESTS + 1] = { { header, (u64)write->header_blocks << vol->block_shift } };
	struct io_wait wait;
	u32 count = 1, near, i;
	int err;

	for (i = 0; i < write->count; i++) {
		if (write->requests[i]->blocks)
			vec[count++] = (struct kvec){ write->requests[i]->data,
						      (u64)write->requests[i]->blocks << vol->block_shift };
	}
	near = write->far ? 1 : count;
	io_wait_init(&wait);
	device_writev(vol->dev, write->addr, vec, near, 0, &wait);
	if (write->far)
		device_writev(vol->dev, write->far, vec + near, count - near, 0, &wait);
	device_kick(vol->dev);
	err = io_wait_finish(&wait);
	if (err || !vol->dev->volatile_cache)
		return err;
	count_add(vol, TUX3_COUNT_FLUSHES, 1);
	err = vol->opts.drop_flush ? 0 : device_flush(vol->dev);
	/* It is not about the batch alone: what else was written since the last flush may be lost, and none will say so again. */
	if (err)
		volume_abort(vol, err, "a flush failed");
	/* Nor do we know whether another one, that failed just before, was about what we had written. */
	return volume_error(vol);
}

static void write_batch(struct volume *vol)
{
	struct intent *intent = &vol->intent;
	struct intent_write write = {};
	int err = -ENOMEM;
	u8 *header;
	bool some;
	u32 i;

	mutex_lock(&intent->write);
	spin_lock(&intent->lock);
	some = write_choose(vol, &write);
	spin_unlock(&intent->lock);
	if (!some)
		goto out;
	header = kvzalloc((u64)write.header_blocks << vol->block_shift, GFP_NOFS | __GFP_NOWARN);
	if (header) {
		write_fill(vol, &write, header);
		write_seal(vol, &write, header);
		err = write_submit(vol, &write, header);
	}
	kvfree(header);
	spin_lock(&intent->lock);
	intent->writing_delta = 0;
	if (err)
		intent->broken = write.place.delta;
	spin_unlock(&intent->lock);
	if (!err) {
		count_add(vol, TUX3_COUNT_FSYNCS_AHEAD, write.count);
		count_add(vol, TUX3_COUNT_FSYNCS_NAMES, write.closures);
		count_add(vol, TUX3_COUNT_FSYNCS_DIRS, write.dirs);
		count_add(vol, TUX3_COUNT_INTENT_BLOCKS, write.header_blocks + write.data_blocks);
	}
	for (i = 0; i < write.count; i++)
		request_written(intent, write.requests[i], err ? -EAGAIN : 0);
out:
	mutex_unlock(&intent->write);
}

void intent_write_batch(struct work_struct *work)
{
	struct intent *intent = container_of(work, struct intent, work);

	write_batch(container_of(intent, struct volume, intent));
	pass_on(intent);
}

int intent_request_finish(struct volume *vol, struct intent_request *request)
{
	struct intent *intent = &vol->intent;

	if (!request_begins(intent, request) && wait_for_completion_killable(&request->wake)) {
		request_leave(intent, request);
		return -EINTR;
	}
	if (!request->writes)
		return 0;
	while (!request->done)
		write_batch(vol);
	pass_on(intent);
	return 0;
}
