/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Scrub: the core's (core/scrub/scrub.h), for programs that have tux3.h. */
#include "lib.h"
#include "core/scrub/scrub.h"

static void tell(const struct tux3_ioc_scrub_problem *from, tux3_scrub_fn fn, void *ctx)
{
	static const char *const kinds[] = {
#define X(number, NAME, name, what) [number] = name,
		TUX3_SCRUB_KINDS(X)
#undef X
	};
	struct tux3_scrub_problem problem = {
		.kind = kinds[from->kind], .why = from->why, .path = from->path[0] ? from->path : NULL,
		.unreadable = from->flags & TUX3_SCRUB_UNREADABLE,
		.ino = from->ino, .ino_last = from->ino_last, .offset = from->offset, .block = from->addr, .count = from->count,
	};

	fn(ctx, &problem);
}

int tux3_scrub(struct tux3 *volume, struct tux3_scrub *scrub, tux3_scrub_fn fn, void *ctx)
{
	struct tux3_ioc_scrub *portion;
	u32 i;
	int err;

	static_assert(sizeof(scrub->cursor) == sizeof(portion->cursor));
	if (!volume || !scrub)
		return -EINVAL;
	portion = kzalloc(sizeof(*portion), GFP_KERNEL);
	if (!portion)
		return -ENOMEM;
	memcpy(portion->cursor, scrub->cursor, sizeof(portion->cursor));
	portion->budget_bytes = scrub->budget_bytes;
	err = volume_scrub(volume->vol, portion);
	if (!err) {
		memcpy(scrub->cursor, portion->cursor, sizeof(scrub->cursor));
#define FIELD(name) scrub->name = portion->name
		FIELD(nodes); FIELD(maps); FIELD(log_blocks); FIELD(blocks);
		FIELD(bytes_read); FIELD(bytes_done); FIELD(bytes_all);
#undef FIELD
		scrub->problems = portion->problem_count;
		scrub->over = portion->flags & TUX3_SCRUB_OVER;
	}
	for (i = 0; !err && fn && i < portion->problem_count; i++)
		tell(&portion->problem[i], fn, ctx);
	kfree(portion);
	return err;
}
