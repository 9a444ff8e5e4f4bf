// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rules of file data (core/data/data_change.h) without a cache: what is planned for each kind of change, what it costs,
 * and in which order it is carried out.
 */
#include <linux/falloc.h>
#include "support_lib.h"
#include "user/lib/lib.h"

#define BLOCK 4096u
#define MAX_INLINE (BLOCK / 8)

/* A host without blocks.  It stops before the delta unless it is to go on. */
static struct host {
	bool goes_on;
	u32 dirty;		/* edges that are dirty in the delta already */
	u32 tries;		/* so often begin() asks for another */
	char called[64];
	struct data_change seen;
} host;

static void note(char what)
{
	size_t len = strlen(host.called);

	if (len + 1 < sizeof(host.called)) {
		host.called[len] = what;
		host.called[len + 1] = 0;
	}
}

static int host_open(struct data_change *change)
{
	note('o');
	host.seen = *change;
	return host.goes_on ? 0 : -ECANCELED;
}

static int host_prepare(struct data_change *change)
{
	note('p');
	return 0;
}

static int host_begin(struct data_change *change, struct delta_op *op)
{
	note('b');
	if (host.tries) {
		host.tries--;
		return -EAGAIN;
	}
	if (change->edges > host.dirty)
		data_dirty(op, change->inode);
	return change->edges - min(change->edges, host.dirty);
}

static void host_apply(struct data_change *change, struct delta_op *op)
{
	note(change->inode->attr.size == change->new_size ? 'A' : 'a');
}

static void host_end(struct data_change *change)
{
	note('e');
}

static void host_close(struct data_change *change, int err)
{
	note(err ? 'C' : 'c');
}

static const struct data_change_ops ops = {
	.open = host_open,
	.prepare = host_prepare,
	.begin = host_begin,
	.apply = host_apply,
	.end = host_end,
	.close = host_close,
};

static struct volume plain = { .block_size = BLOCK, .block_shift = 12, .total_blocks = 1 << 20 };

static void begin_case(struct data_change *change, struct tux3_inode *inode, u64 size, u32 flags)
{
	memset(&host, 0, sizeof(host));
	memset(inode, 0, sizeof(*inode));
	inode->vol = &plain;
	inode->attr.size = size;
	inode->attr.flags = flags;
	data_change_init(change, inode, &ops);
}

static void assert_edge(const struct data_change *change, u32 i, u64 block, u32 from, u32 to, bool even_hole)
{
	assert_true(i < change->edges);
	assert_int_equal(change->edge[i].block, block);
	assert_int_equal(change->edge[i].from, from);
	assert_int_equal(change->edge[i].to, to);
	assert_int_equal(change->edge[i].even_hole, even_hole);
}

/* ---- what is planned ---- */

static const struct data_change *plan_truncate(u64 size, u32 flags, u64 new_size)
{
	static struct tux3_inode inode;
	struct data_change change;

	begin_case(&change, &inode, size, flags);
	assert_int_equal(data_truncate(&change, new_size), -ECANCELED);
	assert_string_equal(host.called, "oC");
	assert_int_equal(host.seen.new_size, new_size);
	return &host.seen;
}

static void test_plan_truncate(void **state)
{
	const struct data_change *seen;

	/* Longer, from within a block: that one gets zeros from the old end on, and is in no extent yet perhaps. */
	seen = plan_truncate(5000, 0, 100000);
	assert_int_equal(seen->edges, 1);
	assert_edge(seen, 0, 1, 5000 - BLOCK, BLOCK, false);
	assert_false(data_change_removes(seen));
	assert_int_equal(plan_truncate(8192, 0, 100000)->edges, 0);
	assert_int_equal(plan_truncate(0, 0, 100000)->edges, 0);

	/* What may be inline is block 0 for two reasons at once, and one block. */
	seen = plan_truncate(100, TUX3_ATTR_INLINE, 200);
	assert_int_equal(seen->edges, 1);
	assert_edge(seen, 0, 0, 100, BLOCK, true);
	seen = plan_truncate(MAX_INLINE, 0, 8192);
	assert_int_equal(seen->edges, 1);
	assert_edge(seen, 0, 0, MAX_INLINE, BLOCK, false);

	/* Shorter: all beyond the end goes; the rest of its block is zeroed in the cache alone. */
	seen = plan_truncate(100000, 0, 5000);
	assert_int_equal(seen->edges, 0);
	assert_true(data_change_removes(seen));
	assert_int_equal(seen->hole, 2);
	assert_int_equal(seen->hole_count, DATA_END);
	assert_int_equal(data_change_tail(seen), 5000 - BLOCK);
	assert_int_equal(data_change_tail(plan_truncate(100000, 0, 8192)), 0);
	seen = plan_truncate(300, TUX3_ATTR_INLINE, 200);
	assert_edge(seen, 0, 0, 0, 0, true);
	/* To nothing: what is inline goes with all the rest. */
	seen = plan_truncate(300, TUX3_ATTR_INLINE, 0);
	assert_int_equal(seen->edges, 0);
	assert_int_equal(seen->hole, 0);

	/* To the size that it has: only if something is preallocated, which goes. */
	assert_false(data_change_removes(plan_truncate(8192, 0, 8192)));
	assert_true(data_change_removes(plan_truncate(8192, TUX3_ATTR_PREALLOC, 8192)));
}

static const struct data_change *plan_punch(u64 size, u32 flags, u64 from, u64 to)
{
	static struct tux3_inode inode;
	struct data_change change;

	begin_case(&change, &inode, size, flags);
	assert_int_equal(data_fallocate(&change, DATA_PUNCH | DATA_FILL, from, to), -ECANCELED);
	assert_string_equal(host.called, "oC");		/* and nothing is filled after that */
	assert_int_equal(host.seen.new_size, size);
	assert_true(data_change_removes(&host.seen));
	return &host.seen;
}

static void test_plan_punch(void **state)
{
	const struct data_change *seen;

	seen = plan_punch(100000, 0, 2 * BLOCK, 5 * BLOCK);
	assert_int_equal(seen->edges, 0);
	assert_int_equal(seen->hole, 2);
	assert_int_equal(seen->hole_count, 3);

	seen = plan_punch(100000, 0, 2 * BLOCK + 1, 5 * BLOCK + 2);
	assert_int_equal(seen->edges, 2);
	assert_edge(seen, 0, 2, 1, BLOCK, false);
	assert_edge(seen, 1, 5, 0, 2, false);
	assert_int_equal(seen->hole, 3);
	assert_int_equal(seen->hole_count, 2);

	seen = plan_punch(100000, 0, 2 * BLOCK + 1, 2 * BLOCK + 9);
	assert_int_equal(seen->edges, 1);
	assert_edge(seen, 0, 2, 1, 9, false);
	assert_int_equal(seen->hole_count, 0);
	/* From within a block to the end of it: the block stays. */
	seen = plan_punch(100000, 0, 2 * BLOCK + 1, 3 * BLOCK);
	assert_int_equal(seen->edges, 1);
	assert_int_equal(seen->hole_count, 0);

	/* Inline data is no block that could be removed. */
	seen = plan_punch(3 * BLOCK + 1, TUX3_ATTR_INLINE, 0, 3 * BLOCK + 7);
	assert_int_equal(seen->edges, 2);
	assert_edge(seen, 0, 0, 0, BLOCK, true);
	assert_edge(seen, 1, 3, 0, 7, false);
	assert_int_equal(seen->hole, 1);
	assert_int_equal(seen->hole_count, 2);
	seen = plan_punch(100000, TUX3_ATTR_INLINE, 2 * BLOCK + 1, 3 * BLOCK + 7);
	assert_int_equal(seen->edges, 3);
	assert_edge(seen, 2, 0, 0, 0, true);
	/* Beyond the end there is nothing that could be kept. */
	seen = plan_punch(300, TUX3_ATTR_INLINE, 2 * BLOCK + 1, 3 * BLOCK + 7);
	assert_int_equal(seen->edges, 1);
	assert_edge(seen, 0, 0, 0, 0, true);
	assert_int_equal(plan_punch(2 * BLOCK, 0, 2 * BLOCK + 1, 3 * BLOCK + 7)->edges, 0);
}

static u32 write_edges(struct data_change *change, u64 size, u32 flags, u64 from, u64 to)
{
	static struct tux3_inode inode;

	begin_case(change, &inode, size, flags);
	data_plan_write(change, from, to);
	return change->edges;
}

static void test_plan_write(void **state)
{
	struct data_change change;

	assert_int_equal(write_edges(&change, 0, 0, 0, 100), 0);
	assert_int_equal(write_edges(&change, 100000, 0, 5, 5000), 0);
	/* At the end of the file, in its last block: that is dirty anyway.  Behind it: it gets so, too. */
	assert_int_equal(write_edges(&change, 5000, 0, 5000, 5001), 0);
	assert_int_equal(write_edges(&change, 5000, 0, 9000, 9001), 1);
	assert_edge(&change, 0, 1, 5000 - BLOCK, BLOCK, false);
	assert_int_equal(write_edges(&change, 8192, 0, 9000, 9001), 0);
	assert_int_equal(write_edges(&change, 300, TUX3_ATTR_INLINE, 9000, 9001), 1);
	assert_edge(&change, 0, 0, 300, BLOCK, true);
	assert_int_equal(write_edges(&change, 300, TUX3_ATTR_INLINE, 300, 9001), 0);
	/* It was small until a moment ago, and the flag says so still. */
	assert_int_equal(write_edges(&change, 5000, TUX3_ATTR_INLINE, 9000, 9001), 2);
}

static int drop_all(struct data_change *change, u32 i)
{
	return change->edge[i].even_hole ? 1 : 0;
}

static void test_holes_are_no_edges(void **state)
{
	struct data_change change;

	write_edges(&change, 5000, TUX3_ATTR_INLINE, 9000, 9001);
	assert_int_equal(data_change_edges(&change, drop_all), 0);
	assert_int_equal(change.edges, 1);
	assert_edge(&change, 0, 0, 0, 0, true);
}

static void test_batches(void **state)
{
	u32 max = DATA_BATCH_MAX, tries = 0;

	assert_int_equal(data_batch_end(&plain, 0, 1 << 20, max), 1 << 20);
	assert_int_equal(data_batch_end(&plain, 5000, 2 << 20, max), 1 << 20);
	assert_int_equal(data_batch_end(&plain, 0, 2 << 20, 1), BLOCK);
	assert_false(data_batch_smaller(&plain, &max, 0, 1 << 20, -EIO));
	/* From the largest to one block: each is half of the one before, and one block is not tried a second time. */
	while (data_batch_smaller(&plain, &max, 0, data_batch_end(&plain, 0, 2 << 20, max), -ENOSPC))
		tries++;
	assert_int_equal(tries, 8);
	assert_int_equal(max, 1);
	max = DATA_BATCH_MAX;
	assert_false(data_batch_smaller(&plain, &max, 5000, 5001, -ENOSPC));
	/* What is smaller than the batch that was refused, wherever that ended. */
	assert_true(data_batch_smaller(&plain, &max, 0, 5 * BLOCK, -ENOSPC));
	assert_int_equal(max, 4);
	max = DATA_BATCH_MAX;
	assert_true(data_batch_smaller(&plain, &max, 253 * BLOCK + 1, 256 * BLOCK, -EDQUOT));
	assert_int_equal(max, 2);
}

/* ---- how it is carried out ---- */

static struct bed bed;

static void make(void)
{
	memset(&bed, 0, sizeof(bed));
	bed.opts.manual = true;
	bed_make(&bed, 16 << 20, BLOCK);
}

static s64 balance(void)
{
	return space_balance(bed.volume->vol);
}

/* The host's edges may be dirty already: then what they would have cost comes back. */
static s64 cost_of_truncate(struct tux3_node *node, u64 size, u32 dirty, u32 tries)
{
	struct data_change change;
	s64 before = balance();

	memset(&host, 0, sizeof(host));
	host.goes_on = true;
	host.dirty = dirty;
	host.tries = tries;
	data_change_init(&change, &node->inode, &ops);
	assert_ok(data_truncate(&change, size));
	return before - balance();
}

static void test_what_is_not_used_comes_back(void **state)
{
	struct tux3_node *node;
	s64 fresh;

	make();
	node = bed_file(&bed, "/file");
	assert_ok(tux3_truncate(node, 5000));
	assert_ok(delta_commit(bed.volume->vol));
	fresh = cost_of_truncate(node, 5001, 0, 0);
	assert_string_equal(host.called, "opbaec");	/* longer: zeros first, then the size */
	/* In the same delta the attributes are paid. */
	assert_true(cost_of_truncate(node, 5001 + BLOCK, 0, 0) < fresh);
	assert_ok(delta_commit(bed.volume->vol));
	assert_int_equal(cost_of_truncate(node, 5002 + BLOCK, 0, 2), fresh);
	assert_string_equal(host.called, "opbpbpbaec");
	assert_ok(delta_commit(bed.volume->vol));
	assert_true(cost_of_truncate(node, 5003 + BLOCK, 1, 0) < fresh);
	cost_of_truncate(node, 4097, 0, 0);
	assert_string_equal(host.called, "opbAec");	/* shorter: the other way round */
	assert_int_equal(node->inode.attr.size, 4097);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Batches, and in a volume that is nearly full smaller ones; what was allocated stays. */
static void test_fallocate_in_batches(void **state)
{
	struct tux3_node *node;
	struct data_change change;
	struct data_count counts;

	make();
	node = bed_file(&bed, "/file");
	memset(&host, 0, sizeof(host));
	host.goes_on = true;
	data_change_init(&change, &node->inode, &ops);
	assert_ok(data_fallocate(&change, DATA_FILL, 10, 3 * DATA_BATCH_MAX * BLOCK));
	assert_string_equal(host.called, "opbaecopbaecopbaec");
	assert_int_equal(node->inode.attr.size, 3 * DATA_BATCH_MAX * BLOCK);
	assert_ok(data_look_count(&node->inode, 0, 3 * DATA_BATCH_MAX, &counts));
	assert_int_equal(counts.unwritten, 3 * DATA_BATCH_MAX);

	/* Nothing to do: no delta. */
	host.called[0] = 0;
	data_change_init(&change, &node->inode, &ops);
	assert_ok(data_fallocate(&change, DATA_FILL | DATA_KEEP_SIZE, 0, 2 * DATA_BATCH_MAX * BLOCK));
	assert_string_equal(host.called, "");

	data_change_init(&change, &node->inode, &ops);
	/* More than there is: nothing is done.  What there is can be had. */
	assert_int_equal(data_fallocate(&change, DATA_FILL | DATA_KEEP_SIZE, 0, 64 << 20), -ENOSPC);
	assert_string_equal(host.called, "");
	assert_ok(data_look_count(&node->inode, 0, (64 << 20) / BLOCK, &counts));
	assert_int_equal(counts.unwritten, 3 * DATA_BATCH_MAX);
	assert_ok(data_fallocate(&change, DATA_FILL | DATA_KEEP_SIZE, 0, 10 << 20));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- stores through a mapping: the cache of libtux3 stands for the pages ---- */

static u64 store_block;

static int store_edge(struct data_change *plan, u32 i)
{
	return plan->edge[i].block == store_block ? 0 : file_change_edge(plan, i);
}

/* What a fault does.  *taken: of the balance. */
static int store(struct tux3_node *node, u64 block, char byte, s64 *taken)
{
	struct file_change change = {};
	s64 before = balance();
	struct delta_op op;
	u64 fresh, at, count;
	void *buffer;
	bool hole;
	u32 newly;
	int err;

	store_block = block;
	file_reserve_init(&change.reserve, node);
	data_plan_store(&change.plan, &node->inode);
	assert_ok(file_fill_block(node, block, change.plan.size, true, &hole));
	assert_ok(file_reserve_blocks(&change.reserve, block, 1));
	assert_ok(data_change_edges(&change.plan, store_edge));
	assert_ok(data_price_store(&change.plan, block, 1, file_cache_find_dirty(node, block, block + 1, &at, &count)));
	err = data_change_enter(&change.plan, &op);
	if (!err) {
		newly = file_change_dirty_edges(&change, &op);
		newly += file_cache_dirty(&change.reserve, op.delta, block, 1, ~0ULL, &buffer, &fresh);
		memset(buffer, byte, BLOCK);
		file_change_dirtied(&change, &op, newly);
		data_settle_store(&change.plan, &op, newly);
		delta_leave(&op);
	}
	file_reserve_exit(&change.reserve);
	if (taken)
		*taken = before - balance();
	return err;
}

static u64 overdrafts(void)
{
	return delta_counter(bed.volume->vol, TUX3_COUNT_OVERDRAFTS);
}

static void commit(void)
{
	assert_ok(delta_commit(bed.volume->vol));
	assert_int_equal(overdrafts(), 0);
}

static void assert_byte(struct tux3_node *node, u64 block, char byte)
{
	char data[BLOCK];

	assert_int_equal(tux3_read(node, data, BLOCK, block * BLOCK), BLOCK);
	assert_int_equal(data[0], byte);
	assert_int_equal(data[BLOCK - 1], byte);
}

static void test_a_store_is_charged_in_its_fault(void **state)
{
	struct tux3_node *node;
	s64 price, taken;

	make();
	node = bed_file(&bed, "/file");
	assert_ok(tux3_truncate(node, 100 * BLOCK));
	commit();
	assert_ok(store(node, 5, 'a', &price));
	assert_true(price > 1);
	/* Another fault for the same block; and for others. */
	assert_ok(store(node, 5, 'b', &taken));
	assert_int_equal(taken, 0);
	assert_ok(store(node, 50, 'c', &taken));
	assert_int_equal(taken, price);
	/* The next delta writes it anew. */
	commit();
	assert_ok(store(node, 5, 'd', &taken));
	assert_int_equal(taken, price);

	/* What was charged is the delta's until the commit, even if there is nothing to write any more. */
	taken = balance();
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * BLOCK, BLOCK));
	assert_true(balance() <= taken);
	commit();
	assert_true(balance() > taken);
	assert_ok(store(node, 7, 'e', NULL));
	assert_ok(tux3_truncate(node, 6 * BLOCK));
	assert_ok(tux3_truncate(node, 100 * BLOCK));
	commit();
	assert_byte(node, 5, 0);
	assert_byte(node, 7, 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Stores to one block after the other until there is no space.  The first that could not be made. */
static u64 store_all(struct tux3_node *node, u64 block)
{
	while (block < (64 << 20) / BLOCK && !store(node, block, 'a', NULL))
		block++;
	assert_int_equal(store(node, block, 'a', NULL), -ENOSPC);
	return block;
}

/* Who stores is told that there is no space, in the fault: no commit is short of it. */
static void test_a_store_without_space_fails(void **state)
{
	struct tux3_node *node, *full;
	u64 block, stored;

	make();
	node = bed_file(&bed, "/prealloc");
	assert_ok(tux3_fallocate(node, 0, 0, 8 * BLOCK));
	full = bed_file(&bed, "/full");
	assert_ok(tux3_truncate(full, 64 << 20));
	stored = store_all(full, 0);
	assert_true(stored > 1000 && stored < (16 << 20) / BLOCK);
	/* What is preallocated can be written, once. */
	for (block = 0; block < 8; block++)
		assert_ok(store(node, block, 'b', NULL));
	commit();
	stored = store_all(full, stored);
	assert_int_equal(store(node, 3, 'c', NULL), -ENOSPC);
	assert_byte(node, 3, 'b');
	assert_byte(full, stored - 1, 'a');
	tux3_node_put(node, 1);
	tux3_node_put(full, 1);
	bed_free(&bed);
}

static void test_price_of_a_store(void **state)
{
	struct data_change change;
	struct delta_op op = {};
	struct tux3_node *node;

	make();
	node = bed_file(&bed, "/file");
	assert_ok(tux3_fallocate(node, 0, 0, 8 * BLOCK));
	commit();
	data_plan_store(&change, &node->inode);
	assert_ok(data_price_store(&change, 3, 1, false));
	assert_int_equal(change.enter, DELTA_PAID);
	assert_int_equal(change.new_blocks, 0);
	/* By the time it is inside somebody else has written there, and that is being committed. */
	op.delta = tux3_core(bed.volume)->delta.front;
	assert_true(data_store_is_stale(&change, &op, true));
	assert_false(data_store_is_stale(&change, &op, false));
	/* Or it was committed. */
	op.delta++;
	assert_true(data_store_is_stale(&change, &op, false));
	/* Dirty already, or not alone: as any other. */
	data_plan_store(&change, &node->inode);
	assert_ok(data_price_store(&change, 3, 1, true));
	assert_int_equal(change.enter, 0);
	assert_int_equal(change.new_blocks, 1);
	assert_false(data_store_is_stale(&change, &op, true));
	data_plan_store(&change, &node->inode);
	assert_ok(data_price_store(&change, 3, 2, false));
	assert_int_equal(change.new_blocks, 2);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A file that was inline has grown since: a store behind it brings block 0 along. */
static void test_a_store_beside_inline_data(void **state)
{
	static char old[100] = "inline";
	struct data_change change;
	struct tux3_node *node;
	char data[100];

	make();
	node = bed_file(&bed, "/file");
	assert_int_equal(tux3_write(node, old, sizeof(old), 0), sizeof(old));
	commit();
	assert_true(node->inode.attr.flags & TUX3_ATTR_INLINE);
	data_plan_store(&change, &node->inode);
	assert_int_equal(change.edges, 1);
	assert_edge(&change, 0, 0, 0, 0, true);
	assert_ok(tux3_truncate(node, 10 * BLOCK));
	data_plan_store(&change, &node->inode);
	assert_int_equal(change.edges, 1);
	assert_ok(store(node, 2, 'z', NULL));
	commit();
	data_plan_store(&change, &node->inode);
	assert_int_equal(change.edges, 0);
	bed_crash(&bed);
	node = bed_file(&bed, "/file");
	assert_int_equal(tux3_read(node, data, sizeof(data), 0), sizeof(data));
	assert_memory_equal(data, old, sizeof(old));
	assert_byte(node, 2, 'z');
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plan_truncate),
		cmocka_unit_test(test_plan_punch),
		cmocka_unit_test(test_plan_write),
		cmocka_unit_test(test_holes_are_no_edges),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_what_is_not_used_comes_back),
		cmocka_unit_test(test_fallocate_in_batches),
		cmocka_unit_test(test_a_store_is_charged_in_its_fault),
		cmocka_unit_test(test_a_store_without_space_fails),
		cmocka_unit_test(test_price_of_a_store),
		cmocka_unit_test(test_a_store_beside_inline_data),
	};

	if (delta_init(&plain))		/* its counts */
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
