// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ioctl of scrub (core/scrub/scrub.h): one portion, in the task of who asks.
 *
 * The open file keeps the volume mounted.  Nothing is written, so it works on what is read-only, or frozen.
 */
#include "core/ioctl.h"
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
