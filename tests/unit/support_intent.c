// SPDX-License-Identifier: GPL-2.0-or-later
/* Described in support_intent.h. */
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "support_intent.h"

#define WAITING_MS	30u	/* so long at a time */
#define WAITING_MAX_MS	(60u * 1000)

void *fsync_path(void *arg)
{
	assert_ok(tux3_fsync(arg, false));
	return NULL;
}

/* Does the thread sleep?  Who was woken and has no CPU yet does not. */
static bool sleeps(const char *tid)
{
	char path[64], line[256] = "";
	const char *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", tid);
	file = fopen(path, "r");
	if (!file)
		return true;		/* it is over */
	if (!fgets(line, sizeof(line), file))
		*line = 0;
	fclose(file);
	state = strrchr(line, ')');
	return !state || state[2] == 'S';
}

static bool others_sleep(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	bool all = true;

	assert_non_null(tasks);
	while (all && (task = readdir(tasks)))
		all = *task->d_name == '.' || atoi(task->d_name) == gettid() || sleeps(task->d_name);
	closedir(tasks);
	return all;
}

void let_others_wait(void)
{
	u32 ms = 0, waiting = 0;

	while (waiting < WAITING_MS) {
		assert_true(ms++ < WAITING_MAX_MS);
		usleep(1000);
		waiting = others_sleep() ? waiting + 1 : 0;
	}
}

static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	pthread_t thread;
	struct bed *bed;
	sem_t waits, may_go;
	bool armed;
} held;

static void held_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	if (held.armed && pthread_equal(pthread_self(), held.thread)) {
		held.armed = false;
		sem_post(&held.waits);
		sem_wait(&held.may_go);
	}
	held.inner->write(dev, addr, vec, vecs, flags, wait);
}

static void *held_commit(void *unused)
{
	held.thread = pthread_self();
	held.armed = true;
	assert_ok(tux3_sync(held.bed->volume));
	return NULL;
}

void hold_commit(struct bed *bed, pthread_t *thread)
{
	held.bed = bed;
	held.inner = bed->dev->ops;
	held.ops = *held.inner;
	held.ops.write = held_write;
	sem_init(&held.waits, 0, 0);
	sem_init(&held.may_go, 0, 0);
	bed->dev->ops = &held.ops;
	assert_int_equal(pthread_create(thread, NULL, held_commit, NULL), 0);
	sem_wait(&held.waits);
}

void let_commit(struct bed *bed, pthread_t thread, const pthread_t *other)
{
	sem_post(&held.may_go);
	pthread_join(thread, NULL);
	if (other)
		pthread_join(*other, NULL);
	bed->dev->ops = held.inner;
}

void assert_image(struct bed *bed, u32 recovered, void (*look)(struct bed *bed))
{
	struct bed copy = { .opts = bed->opts };

	copy.dev = device_memory_create(BYTES);
	memcpy(device_memory_bytes(copy.dev), device_memory_bytes(bed->dev), BYTES);
	bed_open(&copy);
	assert_int_equal(tux3_core(copy.volume)->intent.recovered, recovered);
	look(&copy);
	bed_free(&copy);
}
