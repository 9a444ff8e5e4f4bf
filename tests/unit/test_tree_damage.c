// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The tree on images that lie: changed bytes, nodes that break a rule under a checksum that fits, blocks that are reached
 * twice, free maps and anchors that are wrong.
 *
 * Random cases print the command that runs them again.  TUX3_TEST_SEED=n runs only that one, TUX3_TEST_RUNS=n runs n
 * times as many, TUX3_TEST_VERBOSE=1 shows what the code under test prints.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/tree/tree_internal.h"
#include "support_tree.h"
#include "user/env/device_memory.h"
#include "user/env/log.h"

/* A tree of a few hundred items on the disk, at least two levels high. */
static struct tree_fixture *image_open(u64 *random, u32 block_size)
{
	struct random_run run = {
		.random = random, .fixture = fixture_open(block_size, max(1024u, (8u << 20) / block_size), 0),
		.keys = KEYS_MIXED, .lens = LENS_ANY, .inodes = 30, .offsets = 1000, .growing = 100,
	};
	u32 i;

	for (i = 0; i < 400; i++)
		random_change(&run);
	fixture_sync(run.fixture);
	check(run.fixture->vol.tree.root_level > 0);
	return run.fixture;
}

static u8 *image_node(struct tree_fixture *fixture, u64 addr)
{
	return (u8 *)device_memory_bytes(fixture->vol.dev) + addr * fixture->vol.block_size;
}

static u64 image_child(struct tree_fixture *fixture, u64 addr, u32 pos)
{
	return inner_link((struct disk_node *)image_node(fixture, addr), pos).addr;
}

static void image_seal(struct tree_fixture *fixture, u8 *node)
{
	struct disk_node *header = (struct disk_node *)node;
	__le32 zero = 0;
	u32 crc = crc32c(~0u, node, 4);

	crc = crc32c(crc, &zero, 4);
	header->crc = cpu_to_le32(crc32c(crc, node + 8, fixture->vol.block_size - 8));
}

static void flip_bytes(struct tree_fixture *fixture, u64 addr)
{
	struct volume *vol = &fixture->vol;
	u8 *node = image_node(fixture, addr);
	char why[NODE_WHY_MAX];
	u32 i;

	check(!node_check(vol, node, addr, 0, -1, why, sizeof(why)));
	check(node_check(vol, node, addr + 1, 0, -1, why, sizeof(why)));
	check(node_check(vol, node, addr, 99999, -1, why, sizeof(why)));
	check(node_check(vol, node, addr, 0, 7, why, sizeof(why)));
	for (i = 0; i < vol->block_size; i++) {
		u8 old = node[i];

		node[i] ^= 1 << i % 8;
		why[0] = 0;
		check(node_check(vol, node, addr, 0, -1, why, sizeof(why)) == -EIO);
		check(why[0]);
		node[i] = old;
	}
}

static void test_any_changed_byte_is_found(void **state)
{
	u32 block_size;
	u64 random = 5;

	test_name = "changed_byte";
	for (block_size = 4096; block_size <= 65536; block_size *= 16) {
		struct tree_fixture *fixture = image_open(&random, block_size);
		u64 root = fixture->vol.tree.root_addr;

		flip_bytes(fixture, root);
		flip_bytes(fixture, image_child(fixture, root, 0));
		fixture_close(fixture);
	}
}

/* Each rule of the layout, broken alone under a checksum that fits. */
static void break_rule(struct tree_fixture *fixture, u64 addr, u32 rule)
{
	struct volume *vol = &fixture->vol;
	u8 *image = image_node(fixture, addr), *saved = malloc(vol->block_size);
	struct disk_node *node = (struct disk_node *)image;
	struct disk_branch *branches = inner_branches(node);
	struct disk_item *items = leaf_items(node);
	u32 count = node_count(node), bytes = count * (node->level ? sizeof(*branches) : sizeof(*items));
	char why[NODE_WHY_MAX] = "";

	memcpy(saved, image, vol->block_size);
	check(count > 2);
	switch (rule) {
	case 0:	node->magic ^= 1; break;
	case 1:	node->volume_id ^= 1; break;
	case 2:	node->addr ^= 1; break;
	case 3:	node->level = cpu_to_le16(TUX3_MAX_LEVEL + 1); break;
	case 4:	node->spare[23] = 1; break;
	case 5:	node->count = cpu_to_le16(count + 1); break;
	case 6:	node->count = cpu_to_le16(count - 1); break;
	case 7:	node->count = 0; break;
	case 8:	node->count = cpu_to_le16(U16_MAX); break;
	case 9:	le32_add_cpu(&node->data_start, 1); break;
	case 10: le32_add_cpu(&node->data_start, -1); break;
	case 11: image[sizeof(*node) + bytes] = 1; break;
	case 12: node->level = cpu_to_le16(!node->level); break;
	default:
		if (node->level) {
			switch (rule) {
			case 13: branches[2].key = branches[1].key; break;
			case 14: swap(branches[2].key, branches[1].key); break;
			case 15: branches[1].addr = cpu_to_le64(vol->total_blocks); break;
			case 16: branches[1].addr = cpu_to_le64(U64_MAX); break;
			case 17: branches[1].addr = cpu_to_le64(balloc_slot_addr(vol, 0, 1)); break;
			case 18: branches[1].addr = cpu_to_le64(vol->total_blocks - 1); break;
			case 19: branches[1].addr = 0; break;
			default: branches[1].birth = 0;
			}
			break;
		}
		switch (rule) {
		case 13: items[2].key = items[1].key; break;
		case 14: swap(items[2].key, items[1].key); break;
		case 15: items[1].at = cpu_to_le16(leaf_at(node, 1) + 1); break;
		case 16: items[1].len = cpu_to_le16(leaf_len(node, 1) + 1); break;
		case 17: items[1].spare = cpu_to_le32(1); break;
		case 18: items[1].at = 0; break;
		case 19: items[count - 1].len = cpu_to_le16(U16_MAX); break;
		default: items[0].at = cpu_to_le16(vol->block_size - 1);
		}
	}
	image_seal(fixture, image);
	if (!node_check(vol, image, addr, 0, -1, why, sizeof(why))) {
		print_error("rule %u, level %u\n", rule, node_level(node));
		check(!"a broken rule was not noticed");
	}
	check(why[0]);
	memcpy(image, saved, vol->block_size);
	free(saved);
}

static void test_each_rule_of_the_layout_is_checked(void **state)
{
	u64 random = 6;
	struct tree_fixture *fixture = image_open(&random, 4096);
	u64 root = fixture->vol.tree.root_addr, leaf;
	struct disk_node *node;
	char why[NODE_WHY_MAX];
	u32 rule = 0;

	test_name = "each_rule";
	do {
		leaf = image_child(fixture, root, rule++);
		node = (struct disk_node *)image_node(fixture, leaf);
	} while (node_count(node) < 3);
	for (rule = 0; rule <= 20; rule++) {
		break_rule(fixture, root, rule);
		break_rule(fixture, leaf, rule);
	}
	/* An item too long, though it is where it should be. */
	node_init(&fixture->vol, node, leaf, 1, 0);
	leaf_insert(node, 4096, 0, &(struct node_key){ 1, 1 }, (u8 *)node, TUX3_ITEM_MAX(4096));
	node_seal(&fixture->vol, node);
	check(!node_check(&fixture->vol, node, leaf, 0, 0, why, sizeof(why)));
	leaf_insert(node, 4096, 0, &(struct node_key){ 1, 0 }, (u8 *)node, TUX3_ITEM_MAX(4096) + 1);
	node_seal(&fixture->vol, node);
	check(node_check(&fixture->vol, node, leaf, 0, 0, why, sizeof(why)));
	fixture_close(fixture);
}

/* Bytes, header fields, keys or entries that are not as they were, under a checksum that fits. */
static void damage_node(struct random_run *run, u8 *node)
{
	static const u16 interesting[] = { 0, 1, 63, 64, 4095, 4096, 0x7fff, 0x8000, 0xffff };
	u32 block_size = run->fixture->vol.block_size, times = 1 + test_below(run->random, 3), at, other;

	while (times--) {
		at = test_below(run->random, test_below(run->random, 2) ? block_size : 256);
		other = test_below(run->random, block_size - 32);
		switch (test_below(run->random, 4)) {
		case 0:
			node[at] ^= 1 << test_below(run->random, 8);
			break;
		case 1:
			at = at / 2 * 2;
			*(u16 *)(node + at) = interesting[test_below(run->random, ARRAY_SIZE(interesting))];
			break;
		case 2:
			at = 32 + 2 * test_below(run->random, 4);
			*(u16 *)(node + at) += test_below(run->random, 7) - 3;
			break;
		default:
			at = min(at, block_size - 32);
			memmove(node + at / 8 * 8, node + other / 8 * 8, 8 * (1 + test_below(run->random, 4)));
		}
	}
	image_seal(run->fixture, node);
}

static int count_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	u32 i, sum = 0;

	for (i = 0; i < len; i++)	/* the sanitizer looks whether it is all there */
		sum += ((const u8 *)data)[i];
	*(u32 *)ctx += 1 + (sum == U32_MAX);
	return 0;
}

static int count_node(void *ctx, const struct tree_visit *visit)
{
	check(!visit->data == !!visit->why);
	++*(u32 *)ctx;
	return 0;
}

static void use_damaged(struct random_run *run)
{
	struct tree_fixture *fixture = run->fixture;
	struct volume *vol = &fixture->vol;
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(U64_MAX, 0, 0), key, found;
	u32 count = 0, nodes = 0, i;
	u8 *data = calloc(1, vol->block_size);
	struct tree_merge merge;

	check(!tree_walk(vol, count_node, &nodes));
	check(nodes < 2000);
	tree_scan(vol, &from, &to, count_item, &count);
	for (i = 0; i < 60; i++) {
		key = test_below(run->random, 3) ? existing_key(run) : random_key(run);
		tree_lookup(vol, &key, data, vol->block_size);
		tree_lookup_before(vol, &key, &from, &found, data, vol->block_size);
		tree_prefetch(vol, &key);
		tree_edit_begin(vol);
		switch (test_below(run->random, 4)) {
		case 0:
			tree_delete(vol, &key);
			break;
		case 1:
			to = tree_key(key.ino + 1, TUX3_ITEM_PARENT, 0);
			tree_delete_range(vol, &key, &to, test_below(run->random, 30), count_item, &count, &found);
			break;
		default:
			tree_set(vol, &key, data, random_len(run));
		}
		while (tree_next_merge(vol, &merge))
			tree_merge(vol, &merge);
		if (!test_below(run->random, 10)) {
			merge = (struct tree_merge){ key, test_below(run->random, 3), test_below(run->random, 2) };
			tree_merge(vol, &merge);
		}
		tree_edit_end(vol);
		if (!test_below(run->random, 20)) {
			struct list_head list;
			u64 taken;

			INIT_LIST_HEAD(&list);
			check(!tree_place(vol));
			tree_edit_begin(vol);
			tree_snapshot(vol, &list, &taken);
			vol->delta.applying++;
			tree_edit_end(vol);
			tree_snapshot_done(vol, &list, true);	/* as if written: later reads find nothing */
		}
	}
	nodes = 0;
	check(!tree_walk(vol, count_node, &nodes));
	free(data);
}

static void damage_run(u64 *random)
{
	u32 block_size = test_below(random, 8) ? 4096 : 65536, nodes = 1 + test_below(random, 3);
	struct random_run run = {
		.random = random, .fixture = image_open(random, block_size),
		.keys = KEYS_MIXED, .lens = LENS_ANY, .inodes = 30, .offsets = 1000,
	};
	struct tree_fixture *fixture = run.fixture;
	u64 root = fixture->vol.tree.root_addr, addr;

	while (nodes--) {
		u32 count = node_count((struct disk_node *)image_node(fixture, root));

		addr = test_below(random, 3) && count && count < 1000 ?
			image_child(fixture, root, test_below(random, count)) : root;
		if (addr < fixture->vol.total_blocks)
			damage_node(&run, image_node(fixture, addr));
	}
	fixture_reopen(fixture, test_below(random, 2) ? 0 : 4 * block_size);
	use_damaged(&run);
	fixture_close(fixture);
}

static void test_damaged_nodes_do_no_harm(void **state)
{
	run_seeds("damaged_nodes", 300, damage_run);
}

/* Two branches to one child, a child that is its own parent, a free map that says tree nodes are free. */
static void test_a_block_is_reached_by_one_way_only(void **state)
{
	u64 random = 11, root_addr;
	struct tree_fixture *fixture = image_open(&random, 4096);
	struct disk_node *root;
	struct tree_key key;
	u32 count, nodes = 0, i;

	root_addr = fixture->vol.tree.root_addr;
	root = (struct disk_node *)image_node(fixture, root_addr);
	count = node_count(root);
	for (i = 1; i < count; i++) {
		inner_branches(root)[i].addr = inner_branches(root)[0].addr;
		inner_branches(root)[i].birth = inner_branches(root)[0].birth;
	}
	image_seal(fixture, (u8 *)root);
	fixture_reopen(fixture, 0);
	check(!tree_walk(&fixture->vol, count_node, &nodes));
	assert_int_equal(nodes, 1 + count);
	key = tree_key_from_disk(&inner_branches(root)[0].key);
	check(tree_lookup(&fixture->vol, &key, NULL, 0) >= 0);
	key = tree_key_from_disk(&inner_branches(root)[1].key);
	assert_int_equal(tree_lookup(&fixture->vol, &key, NULL, 0), -EIO);
	assert_int_equal(fixture_set(fixture, &key, 1), -EIO);
	assert_int_equal(fixture_delete(fixture, &key), -EIO);

	inner_branches(root)[1].addr = cpu_to_le64(root_addr);
	inner_branches(root)[1].birth = cpu_to_le64(fixture->vol.tree.root_birth);
	image_seal(fixture, (u8 *)root);
	fixture_reopen(fixture, 0);
	assert_int_equal(tree_lookup(&fixture->vol, &key, NULL, 0), -EIO);
	fixture_close(fixture);
}

/* As far as the free map knows, no tree node is in use. */
static void lie(struct volume *vol)
{
	u64 addr;

	for (addr = 0; addr < vol->total_blocks; addr++) {
		if (!balloc_is_fixed(vol, addr) && balloc_test(vol, addr, 1) == 1)
			check(!balloc_free(vol, BALLOC_NODE, addr, 1));
	}
	vol->balloc.node_goal = 1;
}

static void lying_map_run(u64 *random)
{
	struct tree_fixture *fixture = image_open(random, 4096);
	struct random_run run = {
		.random = random, .fixture = fixture, .keys = KEYS_MIXED, .lens = LENS_ANY, .inodes = 30,
		.offsets = 1000,
	};
	struct volume *vol = &fixture->vol;
	u32 i, refused = 0;

	fixture_reopen(fixture, 4 * 4096);
	for (i = 0; i < 500; i++) {
		struct tree_key key = random_key(&run);
		u8 data[2000] = {};

		if (i % 50 == 0)
			lie(vol);
		tree_edit_begin(vol);
		refused += tree_set(vol, &key, data, random_len(&run)) != 0;
		refused += tree_delete(vol, &key) != 0;
		tree_edit_end(vol);
		tree_lookup(vol, &key, NULL, 0);
	}
	check(refused > 0);
	check(!tree_walk(vol, count_node, &refused));
	fixture_close(fixture);
}

static void test_a_lying_free_map_does_no_harm(void **state)
{
	run_seeds("lying_free_map", 20, lying_map_run);
}

static void test_bad_roots_are_refused(void **state)
{
	static const u32 levels[] = { 1, 12, 13, 255, U32_MAX };
	struct tree_fixture *fixture = fixture_open(4096, 8192, 0);
	struct tree_key key = tree_key(16, TUX3_ITEM_ATTR, 0);
	u32 i, nodes;

	check(!fixture_set(fixture, &key, 100));
	fixture_sync(fixture);
	for (i = 0; i < ARRAY_SIZE(levels) + 2; i++) {
		fixture_reopen(fixture, 0);
		if (i < ARRAY_SIZE(levels))
			fixture->vol.tree.root_level = levels[i];
		else if (i == ARRAY_SIZE(levels))
			fixture->vol.tree.root_addr = U64_MAX;
		else
			fixture->vol.tree.root_birth = 0;
		assert_int_equal(tree_lookup(&fixture->vol, &key, NULL, 0), -EIO);
		assert_int_equal(fixture_set(fixture, &key, 1), -EIO);
		tree_prefetch(&fixture->vol, &key);
		nodes = 0;
		check(!tree_walk(&fixture->vol, count_node, &nodes));
		assert_int_equal(nodes, 1);
	}
	fixture_close(fixture);
}

static int setup(void **state)
{
	test_seed = 0;
	test_name = "";
	messages = 0;
	env_set_log(count_message);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_any_changed_byte_is_found, setup),
		cmocka_unit_test_setup(test_each_rule_of_the_layout_is_checked, setup),
		cmocka_unit_test_setup(test_damaged_nodes_do_no_harm, setup),
		cmocka_unit_test_setup(test_a_block_is_reached_by_one_way_only, setup),
		cmocka_unit_test_setup(test_a_lying_free_map_does_no_harm, setup),
		cmocka_unit_test_setup(test_bad_roots_are_refused, setup),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
