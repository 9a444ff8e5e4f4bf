// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ioctls of scrub (core/scrub/scrub.h): one portion, in the task of who asks; and of holds (core/scrub/hold.h).
 *
 * The open file keeps the volume mounted.  Nothing is written, but for the commit before a hold, so both work on what is
 * read-only, or frozen.
 */
#include "core/ioctl.h"
#include "core/scrub/hold.h"
#include "core/scrub/scrub.h"
#include "linux/vfs.h"

long ioctl_scrub(struct super_block *sb, void __user *user)
{
	struct tux3_ioc_scrub *scrub;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	scrub = memdup_user(user, sizeof(*scrub));
	if (IS_ERR(scrub))
		return PTR_ERR(scrub);
	err = volume_scrub(sb_of(sb)->vol, scrub);
	if (!err && copy_to_user(user, scrub, sizeof(*scrub)))
		err = -EFAULT;
	kfree(scrub);
	return err;
}

long ioctl_hold(struct super_block *sb, void __user *user)
{
	struct tux3_ioc_hold *hold;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	hold = memdup_user(user, sizeof(*hold));
	if (IS_ERR(hold))
		return PTR_ERR(hold);
	err = volume_hold(sb_of(sb)->vol, hold);
	/* One that its owner does not get to know of ends by itself. */
	if (!err && copy_to_user(user, hold, sizeof(*hold)))
		err = -EFAULT;
	kfree(hold);
	return err;
}
