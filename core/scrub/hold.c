// SPDX-License-Identifier: GPL-2.0-or-later
/* Holds, for who asks: see hold.h. */
#include "core/volume.h"
#include "core/blocks/held.h"
#include "core/commit/commit.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/scrub/hold.h"

static_assert(sizeof(struct disk_anchor) == TUX3_HOLD_ANCHOR);

static bool hold_lasts(const struct volume *vol)
{
	return vol->held.on && ktime_get_ns() < vol->held.until_ns;
}

static void hold_prolong(struct volume *vol)
{
	vol->held.until_ns = ktime_get_ns() + TUX3_HOLD_S * (u64)NSEC_PER_SEC;
}

/* An anchor of now, with nothing freed since. */
static int hold_unify(struct volume *vol)
{
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (vol->read_only || vol->delta.paused)
		return 0;
	if (delta_has_changes(vol))
		err = commit_delta(vol);
	if (!err)
		err = delta_unify_committed(vol);
	if (!err && WARN_ON_ONCE(vol->unify.phase != UNIFY_IDLE || vol->balloc.node_frees.count || vol->held.freed.count))
		err = -EBUSY;
	return err;
}

static int hold_take(struct volume *vol, struct tux3_ioc_hold *hold)
{
	int err;

	if (hold_lasts(vol))
		return -EBUSY;
	space_end_hold(vol);
	err = hold_unify(vol);
	if (err)
		return err;
	held_begin(vol);
	vol->held.cookie = max(vol->held.cookie + 1, ktime_get_ns());
	hold_prolong(vol);
	hold->cookie = vol->held.cookie;
	memcpy(hold->anchor, &vol->anchor, sizeof(hold->anchor));
	return 0;
}

static int hold_do(struct volume *vol, struct tux3_ioc_hold *hold)
{
	if (hold->op == TUX3_HOLD_TAKE)
		return hold_take(vol, hold);
	if (!hold_lasts(vol) || hold->cookie != vol->held.cookie)
		return -ESTALE;
	if (hold->op == TUX3_HOLD_RENEW)
		hold_prolong(vol);
	else
		space_end_hold(vol);
	return 0;
}

int volume_hold(struct volume *vol, struct tux3_ioc_hold *hold)
{
	int err;

	lockdep_assert_not_held(&vol->delta.inside);
	if (!hold->op || hold->op > TUX3_HOLD_RELEASE || hold->flags || memchr_inv(hold->spare, 0, sizeof(hold->spare)))
		return -EINVAL;
	if (delta_lock_killable(vol))
		return -EINTR;
	err = volume_error(vol);
	if (!err)
		err = hold_do(vol, hold);
	delta_unlock(vol);
	return err;
}
