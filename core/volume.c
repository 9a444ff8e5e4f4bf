// SPDX-License-Identifier: GPL-2.0-or-later
/* What every part of the core may say of its volume. */
#include "core/error.h"
#include "core/volume.h"

/* A damaged volume has much to tell: not all of it, where others need the same log.  Each of these has a limit of its own. */
void volume_warn(struct volume *vol, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pr_warn_ratelimited("%s: %s\n", vol->dev->name ? vol->dev->name : "volume", text);
}

void volume_tell(struct volume *vol, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pr_warn_ratelimited("%s: %s\n", vol->dev->name ? vol->dev->name : "volume", text);
}

int volume_leave_out(struct volume *vol, int err, const char *format, ...)
{
	char text[512];
	va_list args;

	if (likely(!err || !vol->opts.mend || err == -ENOMEM))
		return err;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	vol->opts.mend->left_out(vol->opts.mend, text);
	return 0;
}

void volume_abort(struct volume *vol, int err, const char *what)
{
	if (atomic_cmpxchg(&vol->error, 0, err) == 0) {
		pr_err("%s: %s (%s): nothing more is written, the volume is read-only now; what was acknowledged before is safe\n",
		       vol->dev->name ? vol->dev->name : "volume", what, error_text(err));
		if (vol->host && vol->host->stopped)
			vol->host->stopped(vol, err);
	}
	wake_up_all(&vol->delta.commit_queue);
	wake_up_all(&vol->delta.gate_queue);
}

int volume_inconsistent(struct volume *vol, const char *format, ...)
{
	char text[300];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	volume_warn(vol, "internal inconsistency: %s", text);
	volume_abort(vol, -EIO, "the state in memory cannot be right");
	return -EIO;
}

void volume_odd(struct volume *vol, bool *told, const char *format, ...)
{
	char text[300];
	va_list args;

	count_add(vol, TUX3_COUNT_ODD_ITEMS, 1);
	if (*told)
		return;		/* more of them would say nothing new */
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	*told = true;
	volume_tell(vol, "%s: fsck.tux3 -y repairs that", text);
}
