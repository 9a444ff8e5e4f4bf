/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A small volume and a sorted array for tests of the tree: see support_tree.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "support_tree.h"
#include "user/env/device_memory.h"

/* xorshift64* */
u64 test_random(u64 *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

u32 test_below(u64 *state, u32 limit)
{
	return (test_random(state) >> 32) % limit;
}

/* ---- model ---- */

u32 model_find(const struct model *model, const struct tree_key *key, bool *found)
{
	u32 low = 0, high = model->count;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (tree_key_compare(&model->items[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*found = low < model->count && !tree_key_compare(&model->items[low].key, key);
	return low;
}

static void model_room(struct model *model, u32 count)
{
	if (count <= model->capacity)
		return;
	model->capacity = 2 * count;
	model->items = realloc(model->items, model->capacity * sizeof(*model->items));
	check(model->items);
}

void model_set(struct model *model, const struct tree_key *key, u32 len, u32 version)
{
	bool found;
	u32 pos = model_find(model, key, &found);

	model_room(model, model->count + 1);
	if (!found) {
		memmove(model->items + pos + 1, model->items + pos, (model->count - pos) * sizeof(*model->items));
		model->count++;
	}
	model->items[pos] = (struct model_item){ *key, len, version };
}

void model_delete(struct model *model, u32 from, u32 to)
{
	if (from < to)
		memmove(model->items + from, model->items + to, (model->count - to) * sizeof(*model->items));
	model->count -= to - from;
}

void model_copy(struct model *to, const struct model *from)
{
	model_room(to, from->count);
	if (from->count)
		memcpy(to->items, from->items, from->count * sizeof(*from->items));
	to->count = from->count;
}

/* ---- item data ---- */

void item_fill(void *data, const struct tree_key *key, u32 version, u32 len)
{
	u64 state = (key->ino << 8 ^ key->type ^ key->offset * 0x9e3779b97f4a7c15ULL ^ (u64)version << 32) | 1;
	u32 i, part;
	u64 word;

	for (i = 0; i < len; i += part) {
		word = i ? test_random(&state) : version;
		part = min_t(u32, len - i, i ? sizeof(word) : sizeof(version));
		memcpy((u8 *)data + i, &word, part);
	}
}

bool item_is_sound(const struct tree_key *key, const void *data, u32 len)
{
	u8 *expected;
	u32 version;
	bool same;

	if (len < sizeof(version))
		return true;
	memcpy(&version, data, sizeof(version));
	expected = malloc(len);
	item_fill(expected, key, version, len);
	same = !memcmp(expected, data, len);
	free(expected);
	return same;
}

/* ---- the volume ---- */

struct tree_fixture *fixture_open(u32 block_size, u64 blocks, u64 cache_bytes)
{
	struct tree_fixture *fixture = calloc(1, sizeof(*fixture));
	struct volume *vol;

	check(fixture);
	vol = &fixture->vol;
	vol->dev = device_memory_create(blocks * block_size);
	check(vol->dev);
	vol->dev->block_size = block_size;
	vol->block_size = block_size;
	vol->block_shift = ilog2(block_size);
	vol->group_blocks = (block_size - 64) * 8;
	vol->total_blocks = blocks;
	vol->group_count = DIV_ROUND_UP(blocks, vol->group_blocks);
	vol->id = 0x1234567890abcdefULL;
	vol->delta.applying = 1;
	INIT_LIST_HEAD(&fixture->nodes);
	range_list_init(&fixture->frees);
	check(!balloc_init(vol, balloc_fixed_blocks(vol)));
	check(!cache_init(vol, cache_bytes));
	tree_init(vol);
	check(!tree_create(vol));
	return fixture;
}

void fixture_close(struct tree_fixture *fixture)
{
	struct volume *vol = &fixture->vol;
	struct node_buffer *buffer;
	u64 dirty = 0;

	if (fixture->flushing)
		tree_snapshot_done(vol, &fixture->nodes, true);
	list_for_each_entry(buffer, &vol->tree.dirty, lru_link)
		dirty++;
	check(dirty == vol->tree.dirty_count);
	tree_discard(vol);
	cache_exit(vol);
	check(!atomic64_read(&vol->cache.bytes));
	range_list_exit(&fixture->frees);
	balloc_exit(vol);
	vol->dev->ops->close(vol->dev);
	free(fixture->model.items);
	free(fixture->at_snapshot.items);
	free(fixture->at_anchor.items);
	free(fixture);
}

/* ---- changes ---- */

/* What the log does after each record. */
static void fixture_merge(struct tree_fixture *fixture)
{
	struct tree_merge merge;

	while (tree_next_merge(&fixture->vol, &merge))
		check(!tree_merge(&fixture->vol, &merge));
}

int fixture_set(struct tree_fixture *fixture, const struct tree_key *key, u32 len)
{
	u32 version = ++fixture->versions;
	u8 *data = malloc(len + 1);
	int err;

	item_fill(data, key, version, len);
	tree_prefetch(&fixture->vol, key);
	tree_edit_begin(&fixture->vol);
	err = tree_set(&fixture->vol, key, data, len);
	tree_edit_end(&fixture->vol);
	if (!err)
		model_set(&fixture->model, key, len, version);
	free(data);
	return err;
}

int fixture_delete(struct tree_fixture *fixture, const struct tree_key *key)
{
	bool found;
	u32 pos = model_find(&fixture->model, key, &found);
	int err;

	tree_edit_begin(&fixture->vol);
	err = tree_delete(&fixture->vol, key);
	fixture_merge(fixture);
	tree_edit_end(&fixture->vol);
	if (!found)
		check(err);
	else if (!err)
		model_delete(&fixture->model, pos, pos + 1);
	return err;
}

struct seen {
	const struct model *model;
	u32 pos;
};

static int see_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct seen *seen = ctx;
	const struct model_item *item = &seen->model->items[seen->pos];
	u8 *expected;

	check(seen->pos < seen->model->count);
	check(!tree_key_compare(&item->key, key));
	check(item->len == len);
	expected = malloc(len + 1);
	item_fill(expected, key, item->version, len);
	check(!memcmp(expected, data, len));
	free(expected);
	seen->pos++;
	return 0;
}

int fixture_delete_range(struct tree_fixture *fixture, const struct tree_key *from, const struct tree_key *to,
			 u32 max)
{
	struct model *model = &fixture->model;
	struct tree_key next = *from;
	bool found;
	u32 first = model_find(model, from, &found), last = model_find(model, to, &found) + found;
	struct seen seen = { model, first };
	int ret;

	last = max(first, last);
	if (last - first > max)
		last = first + max;
	tree_edit_begin(&fixture->vol);
	ret = tree_delete_range(&fixture->vol, from, to, max, see_item, &seen, &next);
	fixture_merge(fixture);
	tree_edit_end(&fixture->vol);
	if (ret < 0)
		return ret;
	check(ret == last - first);
	check(seen.pos == last);
	if (ret == max && last < model->count)
		check(tree_key_compare(&next, &model->items[last].key) <= 0 ||
		      tree_key_compare(&model->items[last].key, to) > 0);
	if (ret == max && ret)
		check(tree_key_compare(&next, &model->items[last - 1].key) > 0);
	model_delete(model, first, last);
	return ret;
}

/* ---- snapshots ---- */

void fixture_snapshot(struct tree_fixture *fixture)
{
	struct volume *vol = &fixture->vol;
	struct node_buffer *buffer;
	struct io_wait wait;
	u64 count, seen = 0;

	check(!fixture->flushing);
	check(!fixture->frees.count);
	check(!tree_place(vol));
	tree_edit_begin(vol);
	tree_snapshot(vol, &fixture->nodes, &count);
	fixture->root = (struct node_link){ vol->tree.root_addr, vol->tree.root_birth, vol->tree.root_level };
	range_list_move(&fixture->frees, &vol->balloc.node_frees);
	WRITE_ONCE(vol->delta.applying, vol->delta.applying + 1);
	tree_edit_end(vol);
	model_copy(&fixture->at_snapshot, &fixture->model);
	io_wait_init(&wait);
	list_for_each_entry(buffer, &fixture->nodes, lru_link) {
		char why[NODE_WHY_MAX] = "";

		node_seal(vol, buffer->data);
		if (node_check(vol, buffer->data, buffer->addr, buffer->birth, buffer->level, why, sizeof(why))) {
			print_error("%s\n", why);
			check(!"a node that is to be written is not valid");
		}
		device_write(vol->dev, buffer->addr, buffer->data, 1, 0, &wait);
		seen++;
	}
	check(!io_wait_finish(&wait));
	check(seen == count);
	fixture->flushing = true;
}

void fixture_finish(struct tree_fixture *fixture)
{
	check(fixture->flushing);
	tree_snapshot_done(&fixture->vol, &fixture->nodes, true);
	check(list_empty(&fixture->nodes));
	check(!balloc_release(&fixture->vol, &fixture->frees));
	fixture->anchor_root = fixture->root;
	model_copy(&fixture->at_anchor, &fixture->at_snapshot);
	fixture->flushing = false;
}

void fixture_sync(struct tree_fixture *fixture)
{
	if (fixture->flushing)
		fixture_finish(fixture);
	fixture_snapshot(fixture);
	fixture_finish(fixture);
	check(!fixture->vol.tree.dirty_count);
}

void fixture_reopen(struct tree_fixture *fixture, u64 cache_bytes)
{
	struct volume *vol = &fixture->vol;
	u64 delta = vol->tree.snapshot_delta;

	check(!fixture->flushing);
	tree_discard(vol);
	cache_exit(vol);
	check(!atomic64_read(&vol->cache.bytes));
	check(!cache_init(vol, cache_bytes));
	tree_init(vol);
	vol->tree.snapshot_delta = delta;
	tree_set_root(vol, fixture->anchor_root.addr, fixture->anchor_root.birth, fixture->anchor_root.level);
}

/* ---- comparing ---- */

void fixture_compare(struct tree_fixture *fixture)
{
	struct seen seen = { &fixture->model, 0 };
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(U64_MAX, 0, 0);

	check(!tree_scan(&fixture->vol, &from, &to, see_item, &seen));
	check(seen.pos == fixture->model.count);
}

struct matched {
	const struct model *model;
	u32 pos;
	bool same;
};

static int match_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct matched *matched = ctx;
	const struct model_item *item = &matched->model->items[matched->pos];
	u8 *expected = malloc(len + 1);

	matched->same = matched->pos < matched->model->count && !tree_key_compare(&item->key, key) &&
			item->len == len;
	if (matched->same) {
		item_fill(expected, key, item->version, len);
		matched->same = !memcmp(expected, data, len);
	}
	free(expected);
	matched->pos++;
	return !matched->same;
}

bool fixture_equals(struct tree_fixture *fixture, const struct model *model)
{
	struct matched matched = { model, 0, true };
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(U64_MAX, 0, 0);

	check(tree_scan(&fixture->vol, &from, &to, match_item, &matched) >= 0);
	return matched.same && matched.pos == model->count;
}

/* ---- invariants ---- */

struct checked {
	struct tree_fixture *fixture;
	struct shape *shape;
	u8 *seen;				/* a byte for each block */
	bool dirty[TUX3_MAX_LEVEL + 1];		/* of the node last visited at each level */
	u64 addr[TUX3_MAX_LEVEL + 1];
	u64 dirty_nodes, unplaced;
};

static void check_keys(const struct tree_visit *visit)
{
	const struct disk_item *items = (const void *)(visit->data + 1);
	const struct disk_branch *branches = (const void *)(visit->data + 1);
	u32 count = le16_to_cpu(visit->data->count), i;
	struct tree_key before = visit->low;

	for (i = 0; i < count; i++) {
		struct tree_key key = tree_key_from_disk(visit->level ? &branches[i].key : &items[i].key);
		int order = tree_key_compare(&before, &key);

		check(i ? order < 0 : order <= 0);
		check(!visit->has_high || tree_key_compare(&key, &visit->high) < 0);
		before = key;
	}
}

static int check_node(void *ctx, const struct tree_visit *visit)
{
	struct checked *checked = ctx;
	struct volume *vol = &checked->fixture->vol;
	u32 count, level = visit->level;

	if (!visit->data)
		print_error("block %llu, level %u: %s\n", visit->addr, level, visit->why);
	check(visit->data);
	count = le16_to_cpu(visit->data->count);
	if (node_unplaced(visit->addr)) {
		check(visit->dirty);
		checked->unplaced++;
	} else {
		check(visit->addr < vol->total_blocks && !checked->seen[visit->addr]);
		checked->seen[visit->addr] = 1;
		check(balloc_test(vol, visit->addr, 1) == 1);
	}
	check(le64_to_cpu(visit->data->addr) == visit->addr);
	check(le64_to_cpu(visit->data->birth) == visit->birth);
	check(le16_to_cpu(visit->data->level) == level);
	check(count || !visit->parent_addr);
	if (visit->parent_addr) {
		check(checked->addr[level + 1] == visit->parent_addr);
		check(!visit->dirty || checked->dirty[level + 1]);
	} else {
		checked->shape->height = level + 1;
	}
	checked->addr[level] = visit->addr;
	checked->dirty[level] = visit->dirty;
	checked->dirty_nodes += visit->dirty;
	check_keys(visit);
	checked->shape->nodes++;
	if (!level) {
		checked->shape->leaves++;
		checked->shape->items += count;
		checked->shape->leaf_bytes += count * sizeof(struct disk_item) +
					      vol->block_size - le32_to_cpu(visit->data->data_start);
	}
	return 0;
}

static void walk_shape(struct tree_fixture *fixture, struct checked *checked)
{
	memset(checked->shape, 0, sizeof(*checked->shape));
	checked->seen = calloc(fixture->vol.total_blocks, 1);
	check(!tree_walk(&fixture->vol, check_node, checked));
	free(checked->seen);
}

static u64 tree_blocks(struct tree_fixture *fixture)
{
	struct balloc *balloc = &fixture->vol.balloc;

	return atomic64_read(&balloc->disk_used) + atomic64_read(&balloc->promised) -
	       balloc_fixed_blocks(&fixture->vol);
}

u64 fixture_lost_blocks(struct tree_fixture *fixture)
{
	struct shape shape;
	struct checked checked = { .fixture = fixture, .shape = &shape };

	walk_shape(fixture, &checked);
	return tree_blocks(fixture) - shape.nodes;
}

void fixture_check(struct tree_fixture *fixture, struct shape *shape)
{
	struct shape own;
	struct checked checked = { .fixture = fixture, .shape = shape ? shape : &own };

	walk_shape(fixture, &checked);
	check(checked.shape->items == fixture->model.count);
	check(checked.dirty_nodes == fixture->vol.tree.dirty_count);
	check(checked.unplaced == fixture->vol.tree.unplaced);
	check(tree_blocks(fixture) == checked.shape->nodes + fixture->leaked);
}

/* ---- random changes ---- */

struct tree_key random_key(struct random_run *run)
{
	static const u8 types[] = { TUX3_ITEM_ATTR, TUX3_ITEM_PARENT, TUX3_ITEM_DIRENT, TUX3_ITEM_EXTENT };
	u64 *random = run->random;
	u64 ino = TUX3_INO_FIRST + test_below(random, run->inodes), offset = test_below(random, run->offsets);
	bool hashed = run->keys == KEYS_HASHED || (run->keys == KEYS_MIXED && test_below(random, 2));

	if (hashed)
		offset = offset * 0x9e3779b97f4a7c15ULL >> 1;
	if (!test_below(random, 200))
		offset = test_below(random, 2) ? 0 : U64_MAX;
	if (!test_below(random, 500))
		ino = test_below(random, 2) ? 0 : TUX3_INO_MAX;
	return tree_key(ino, types[test_below(random, ARRAY_SIZE(types))], offset);
}

u32 random_len(struct random_run *run)
{
	u32 max = TUX3_ITEM_MAX(run->fixture->vol.block_size);

	if (!test_below(run->random, 20))
		return test_below(run->random, 2) ? 0 : max;
	switch (run->lens) {
	case LENS_SMALL:
		return test_below(run->random, 80);
	case LENS_ANY:
		return test_below(run->random, max + 1);
	default:
		return max - test_below(run->random, max / 4);
	}
}

/* A key of the model, if it has any and the dice say so. */
struct tree_key existing_key(struct random_run *run)
{
	struct model *model = &run->fixture->model;

	if (!model->count)
		return random_key(run);
	return model->items[test_below(run->random, model->count)].key;
}

static void random_delete_range(struct random_run *run)
{
	struct tree_key from = random_key(run), to = random_key(run);
	u32 max = test_below(run->random, 4) ? U32_MAX : test_below(run->random, 30);

	if (test_below(run->random, 2))
		from = existing_key(run);
	if (test_below(run->random, 4)) {	/* mostly a small range */
		to = from;
		to.offset += test_below(run->random, run->offsets / 4 + 1);
		to.ino += !test_below(run->random, 3);
	}
	if (tree_key_compare(&from, &to) > 0 && test_below(run->random, 10))
		swap(from, to);
	check(fixture_delete_range(run->fixture, &from, &to, max) >= 0);
}

void random_change(struct random_run *run)
{
	struct tree_key key;
	int err;

	if (test_below(run->random, 100) < run->growing) {
		key = test_below(run->random, 4) ? random_key(run) : existing_key(run);
		check(!fixture_set(run->fixture, &key, random_len(run)));
		return;
	}
	if (!test_below(run->random, 30)) {
		random_delete_range(run);
		return;
	}
	key = test_below(run->random, 10) ? existing_key(run) : random_key(run);
	err = fixture_delete(run->fixture, &key);
	check(!err || err == -ENOENT);
}

void run_seeds(const char *name, u32 runs, void (*fn)(u64 *random))
{
	const char *one = getenv("TUX3_TEST_SEED"), *times = getenv("TUX3_TEST_RUNS");
	u32 i;

	test_name = name;
#ifdef TUX3_ENV_TSAN
	runs = DIV_ROUND_UP(runs, 5);		/* slow, and only one of them has threads */
#endif
	if (times)
		runs *= atoi(times);
	for (i = 1; i <= (one ? 1 : runs); i++) {
		u64 random;

		test_seed = one ? strtoull(one, NULL, 0) : i;
		random = test_seed * 0x9e3779b97f4a7c15ULL;
		test_random(&random);
		fn(&random);
	}
}

u64 messages;

void count_message(int level, const char *message)
{
	__atomic_add_fetch(&messages, 1, __ATOMIC_RELAXED);
	if (getenv("TUX3_TEST_VERBOSE"))
		print_message("%s\n", message);
}
