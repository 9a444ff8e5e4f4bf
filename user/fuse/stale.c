/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names that the kernel may have wrongly in its cache: an operation was done, and it was told of an error, for it could not be
 * made durable.
 *
 * To forget a name the kernel takes the lock of its directory, which whoever has it may keep until a worker has served him: so
 * not a worker asks for that, who would be missed there, but the main thread.
 *
 * Locking: stale.lock protects the list.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tux3_fuse.h"

struct stale_name {
	struct stale_name *next;
	fuse_ino_t dir;
	char name[];
};

static struct {
	pthread_mutex_t lock;
	struct stale_name *names;
	int fd;				/* -1: nobody can be told */
} stale = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

void stale_start(void)
{
	stale.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int stale_fd(void)
{
	return stale.fd;
}

void stale_name(fuse_ino_t dir, const char *name)
{
	size_t size = strlen(name) + 1;
	struct stale_name *entry = malloc(sizeof(*entry) + size);
	const uint64_t one = 1;

	if (!entry)
		return;
	entry->dir = dir;
	memcpy(entry->name, name, size);
	pthread_mutex_lock(&stale.lock);
	entry->next = stale.names;
	stale.names = entry;
	pthread_mutex_unlock(&stale.lock);
	(void)!write(stale.fd, &one, sizeof(one));
}

void stale_forget(bool tell)
{
	struct stale_name *entry, *next;
	uint64_t count;

	(void)!read(stale.fd, &count, sizeof(count));
	pthread_mutex_lock(&stale.lock);
	entry = stale.names;
	stale.names = NULL;
	pthread_mutex_unlock(&stale.lock);
	for (; entry; entry = next) {
		next = entry->next;
		if (tell)
			fuse_lowlevel_notify_inval_entry(mount_state.session, entry->dir, entry->name, strlen(entry->name));
		free(entry);
	}
}
