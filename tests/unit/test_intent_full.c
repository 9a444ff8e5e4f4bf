/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fsyncs that go ahead, and room: they are charged for all that carrying them out may take, however many inodes go together; and
 * on a volume with hardly any room what went ahead can be carried out, on either base, and then the volume can be emptied.
 */
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include "support_check.h"
#include "support_intent.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

/* ---- charges ---- */

static u64 random_cost(u64 *random)
{
	u64 cost = space_cost_items(NULL, bed_random(random) % 64) + space_cost_text(bed_random(random) % 3000);

	return cost + (bed_random(random) % 300 << SPACE_EXTENTS_SHIFT) + (bed_random(random) % 300 << SPACE_DATA_SHIFT) +
	       (bed_random(random) % 300 << SPACE_PROMISED_SHIFT);
}

/* Two operations charged as one are charged no less, but for a block that was rounded up twice; or they are too much. */
static void test_costs_are_added(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u64 random = 1, cost, more, both;
	u32 i, refused = 0;

	bed_make(&bed, BYTES, BLOCK);
	for (i = 0; i < 100000; i++) {
		cost = both = random_cost(&random);
		more = i % 2 ? random_cost(&random) : space_cost_items(NULL, bed_random(&random) % 127);
		if (!space_cost_add(&both, more)) {
			assert_int_equal(both, cost);
			refused++;
			continue;
		}
		assert_true(space_price(core(&bed), 1, both) + 1 >=
			    space_price(core(&bed), 1, cost) + space_price(core(&bed), 1, more));
		assert_true(space_full_price(core(&bed), both) + 1 >=
			    space_full_price(core(&bed), cost) + space_full_price(core(&bed), more));
	}
	assert_in_range(refused, 1000, 50000);
	bed_free(&bed);
}

/* As short as can be: of many of these there is room in an intent. */
static void set_short_xattrs(struct tux3_node *node, u32 count)
{
	char name[20];
	u32 i;

	for (i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "user.%c", '0' + i);
		assert_ok(tux3_setxattr(node, NULL, name, "", 0, 0));
	}
}

/* A file in a directory that is new, both with xattrs: what they cost together is more than fits where each does. */
static void test_a_new_directory_is_paid(void **state)
{
	struct bed bed = { .opts = { .costs = true } };
	struct tux3_node *file, *dir;
	atomic64_t *items;
	s64 before;
	u32 count;

	make(&bed, BLOCK);
	for (count = 10; count <= 20; count += 10) {
		assert_ok(tux3_path_mkdir(bed.volume, NULL, count == 10 ? "/new" : "/more", 0755));
		dir = bed_find(&bed, count == 10 ? "/new" : "/more");
		set_short_xattrs(dir, count);
		file = bed_file(&bed, count == 10 ? "/new/file" : "/more/file");
		fill(file, 0, 5000, count);
		set_short_xattrs(file, 40);
		items = &core(&bed)->space.charges[core(&bed)->delta.front & 1].items;
		before = atomic64_read(items);
		/* A cost has room for 127 items. */
		assert_int_equal(synced_ahead(&bed, file), count == 10);
		/* Nor is anything kept of the try without the directory. */
		if (count == 10)
			assert_int_equal(atomic64_read(items) - before, SPACE_ITEMS_LINK + 10 * SPACE_ITEMS_XATTR +
					 SPACE_ITEMS_LINK + SPACE_ITEMS_WRITE + 40 * SPACE_ITEMS_XATTR);
		tux3_node_put(file, 1);
		tux3_node_put(dir, 1);
	}
	bed_crash(&bed);
	assert_file(&bed, "/new/file", 10, 1);
	assert_file(&bed, "/more/file", 20, 1);
	bed_free(&bed);
}

/* A commit is held for a while: who needs it is not to wait for ever. */
#define HOLD_NS	(40u * 1000 * 1000)

static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	pthread_t thread;
	sem_t waits, may_go;
	u32 before;		/* so many writes go through */
	pthread_mutex_t lock;	/* who has it, while it is on, may look at what is on the device */
	bool armed, on;
} hold = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- with hardly any room ---- */

#define DIRS	6u
#define FILES	30u

static struct tux3_cred user = { .uid = 1000, .gid = 1000, .no_permission_checks = true };

static void path_of(char *path, u64 *random)
{
	u32 depth = bed_random(random) % 4, i, len = sprintf(path, "/d%u", (u32)(bed_random(random) % DIRS));

	for (i = 0; i < depth; i++)
		len += sprintf(path + len, "/e%u", (u32)(bed_random(random) % 3));
	sprintf(path + len, "/f%u", (u32)(bed_random(random) % FILES));
}

/* There may be no room, or nothing by that name. */
static bool may(long long err)
{
	if (err < 0 && err != -ENOSPC && err != -EDQUOT && err != -ENOENT && err != -ENOTDIR)
		fail_msg("error %lld", err);
	return err >= 0;
}

static void sync_path(struct bed *bed, const char *path, bool parent)
{
	struct tux3_node *node;
	char dir[100];

	snprintf(dir, sizeof(dir), "%s", path);
	if (parent)
		*strrchr(dir, '/') = 0;
	node = bed_find(bed, dir);
	if (!node)
		return;
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
}

static void write_path(struct bed *bed, const char *path, u64 *random)
{
	static u8 data[4 * BLOCK];
	struct tux3_node *node;

	if (!may(tux3_path(bed->volume, &user, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node)))
		return;
	if (bed_random(random) % 3 == 0)
		assert_ok(tux3_truncate(node, 0));
	may(tux3_write(node, data, bed_random(random) % sizeof(data), bed_random(random) % 8 * BLOCK));
	if (bed_random(random) % 3 == 0)
		may(tux3_setxattr(node, NULL, "user.x", data, bed_random(random) % 250, 0));
	tux3_node_put(node, 1);
}

/* One change, and mostly an fsync of it or of the directory. */
static void step(struct bed *bed, u64 *random)
{
	char path[100], to[100];
	bool done = true;

	path_of(path, random);
	path_of(to, random);
	switch (bed_random(random) % 8) {
	case 0:
	case 1:
		done = may(tux3_path_rename(bed->volume, &user, path, to, 0));
		strcpy(path, to);
		break;
	case 2:
		done = may(tux3_path_unlink(bed->volume, &user, path));
		break;
	default:
		write_path(bed, path, random);
	}
	if (done && bed_random(random) % 6)
		sync_path(bed, path, bed_random(random) % 2);
}

/* Until so little is left; nobody is refused. */
static void fill_to(struct bed *bed, s64 left)
{
	struct tux3_node *node = bed_file(bed, "/large");
	u64 size = size_of(node);
	u32 n;

	for (n = 0; space_balance(core(bed)) > left; n++) {
		u32 bytes = space_balance(core(bed)) > left + 400 ? 16 * BLOCK : core(bed)->block_size;

		fill(node, size, bytes, 1);
		size += bytes;
		if (space_balance(core(bed)) < left + 2000 && n % 16 == 0)
			assert_ok(tux3_sync(bed->volume));
	}
	tux3_node_put(node, 1);
}

/* With an area for intents, and room for few changes. */
static void begin_round(struct bed *bed, s64 left)
{
	struct tux3_node *node = bed_file(bed, "/large");

	if (!core(bed)->intent.place.addr) {
		assert_ok(tux3_truncate(node, size_of(node) / 2));
		assert_ok(delta_commit_unify(core(bed)));
	}
	while (!core(bed)->intent.place.addr) {
		fill(node, 0, 1, 1);
		assert_ok(tux3_fsync(node, false));
	}
	tux3_node_put(node, 1);
	fill_to(bed, left);
}

/* No change that frees is refused. */
static void remove_files(struct bed *bed, const char *dir)
{
	struct tux3_node *node = bed_find(bed, dir), *file;
	char path[100], name[20];
	u32 i;

	for (i = 0; node && i < FILES; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		file = bed_find(bed, path);
		if (!file)
			continue;
		assert_ok(tux3_setattr(file, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE));
		assert_ok(tux3_truncate(file, size_of(file) / 2));
		tux3_node_put(file, 1);
		assert_ok(tux3_unlink(node, NULL, name));
	}
	for (i = 0; node && i < 3; i++) {
		snprintf(path, sizeof(path), "%s/e%u", dir, i);
		remove_files(bed, path);
	}
	if (node)
		tux3_node_put(node, 1);
}

/* What may be charged, if the delta is tight. */
static s64 tight_balance(struct volume *vol)
{
	struct space_kept kept;

	space_get_kept(vol, &kept);
	return space_balance(vol) + vol->space.standing[vol->delta.front & 1] - kept.standing;
}

static u32 carried_out, beside;		/* so many intents; and while a commit was held */

/*
 * What a crash would have left now.  What carrying it out took was charged: so there is no less room than there was, but for the
 * area that the mount may have made.
 */
static void look_at_image(struct bed *bed, u64 bytes)
{
	s64 room = space_balance(core(bed)) + (s64)core(bed)->space.reserve;
	struct bed copy = { .opts = bed->opts };
	struct tux3_quota quota;
	char path[20];
	u32 i;

	copy.dev = device_memory_create(bytes);
	memcpy(device_memory_bytes(copy.dev), device_memory_bytes(bed->dev), bytes);
	bed_open(&copy);
	carried_out += core(&copy)->intent.recovered;
	beside += READ_ONCE(hold.on) ? core(&copy)->intent.recovered : 0;
	assert_true(tight_balance(core(&copy)) + core(&copy)->intent.place.blocks + (s64)core(&copy)->space.reserve >= room);
	if (bed->quota) {
		assert_ok(tux3_quota_get(copy.volume, TUX3_QUOTA_USER, user.uid, &quota));
		assert_in_range(quota.bytes, 0, quota.bytes_hard);
		assert_in_range(quota.inodes, 0, quota.inodes_hard);
	}
	for (i = 0; i < DIRS; i++) {
		snprintf(path, sizeof(path), "/d%u", i);
		remove_files(&copy, path);
	}
	bed_free(&copy);
}

static void hold_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	struct timespec until;

	if (READ_ONCE(hold.armed) && pthread_equal(pthread_self(), hold.thread) && !hold.before--) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += HOLD_NS;
		until.tv_sec += until.tv_nsec / NSEC_PER_SEC;
		until.tv_nsec %= NSEC_PER_SEC;
		WRITE_ONCE(hold.armed, false);
		WRITE_ONCE(hold.on, true);
		sem_post(&hold.waits);
		sem_timedwait(&hold.may_go, &until);
		pthread_mutex_lock(&hold.lock);
		WRITE_ONCE(hold.on, false);
		pthread_mutex_unlock(&hold.lock);
	}
	hold.inner->write(dev, addr, vec, vecs, flags, wait);
}

static void *sync_held(void *bed)
{
	hold.thread = pthread_self();
	WRITE_ONCE(hold.armed, true);
	assert_ok(tux3_sync(((struct bed *)bed)->volume));
	if (READ_ONCE(hold.armed))
		sem_post(&hold.waits);		/* it had fewer writes */
	WRITE_ONCE(hold.armed, false);
	return NULL;
}

static void beside_commit(struct bed *bed, u64 bytes, u64 *random)
{
	u32 steps = 1 + bed_random(random) % 12, i;
	pthread_t thread;

	hold.inner = bed->dev->ops;
	hold.ops = *hold.inner;
	hold.ops.write = hold_write;
	hold.before = bed_random(random) % 4;
	sem_init(&hold.waits, 0, 0);
	sem_init(&hold.may_go, 0, 0);
	bed->dev->ops = &hold.ops;
	assert_int_equal(pthread_create(&thread, NULL, sync_held, bed), 0);
	sem_wait(&hold.waits);
	for (i = 0; i < steps && READ_ONCE(hold.on); i++)
		step(bed, random);
	pthread_mutex_lock(&hold.lock);
	if (READ_ONCE(hold.on))
		look_at_image(bed, bytes);
	pthread_mutex_unlock(&hold.lock);
	sem_post(&hold.may_go);
	pthread_join(thread, NULL);
	bed->dev->ops = hold.inner;
}

static void run(u64 seed, u64 bytes, u32 block_size, bool quota)
{
	struct tux3_quota limit = { .inodes_hard = 10 + seed % 40, .bytes_hard = (20 + seed % 60) * block_size };
	struct bed bed = { .opts = { .costs = true }, .quota = quota };
	u64 random = seed;
	u32 round, steps;

	make_sized(&bed, bytes, block_size);
	if (quota)
		assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, user.uid, &limit,
					 TUX3_QUOTA_BYTES_HARD | TUX3_QUOTA_INODES_HARD));
	for (round = 0; round < 10; round++) {
		begin_round(&bed, 100 + bed_random(&random) % 300);
		beside_commit(&bed, bytes, &random);
		begin_round(&bed, 40 + bed_random(&random) % 200);
		for (steps = bed_random(&random) % 20; steps; steps--)
			step(&bed, &random);
		look_at_image(&bed, bytes);
		if (bed_random(&random) % 3 == 0)
			bed_crash(&bed);
	}
	bed_free(&bed);
}

static void test_hardly_any_room(void **state)
{
	static const u32 mib[] = { 4, 5, 8, 16 };
	u32 seed;

	for (seed = 1; seed <= FEWER(16, 4); seed++)
		run(seed, mib[seed % 4] << 20, BLOCK, seed % 3 == 0);
	run(seed, 16 << 20, 4 * BLOCK, true);
	print_message("  %u intents were carried out, %u of them beside a commit\n", carried_out, beside);
	assert_true(carried_out > FEWER(60, 15));
}

/* Where there is room the area is as large as it is to be, whatever is left of the stretch in which the log is. */
static void test_the_area_stays_large(void **state)
{
	struct bed bed = { .opts = { .manual = true, .fsync = TUX3_FSYNC_AHEAD } };
	struct tux3_node *node;
	u32 blocks = 0, i, k;

	bed_make(&bed, 1u << 30, BLOCK);
	for (i = 0; i < 70; i++) {
		node = bed_file(&bed, "file");
		for (k = 0; k < 200; k++) {
			fill(node, k * BLOCK, BLOCK, i);
			assert_ok(tux3_fsync(node, false));
		}
		tux3_node_put(node, 1);
		blocks = blocks ? blocks : core(&bed)->intent.place.blocks;
		assert_true(blocks);
		assert_int_equal(core(&bed)->intent.place.blocks, blocks);
		bed_crash(&bed);
	}
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_costs_are_added),
		cmocka_unit_test(test_a_new_directory_is_paid),
		cmocka_unit_test(test_the_area_stays_large),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(test_hardly_any_room),
	};

	return run_alone_and_beside(alone, beside);
}
