/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The user-space environment keeps the promises of core/env.h: trees, lists and bitmaps against simple
 * models, checksums against published vectors, locks and waits under as much concurrency as the
 * machine has (run it as VARIANT=tsan too).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/env.h"
#include "user/env/clock.h"
#include "user/env/fault.h"
#include "user/env/log.h"

u32 env_crc32c_tables(u32 crc, const void *data, size_t bytes);

#define THREADS 4

/* Runs fn(data) in THREADS threads at once. */
static void in_threads(int (*fn)(void *data), void *data)
{
	struct task_struct *task[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		task[i] = kthread_run(fn, data, "test%d", i);
		assert_false(IS_ERR(task[i]));
	}
	for (i = 0; i < THREADS; i++)
		assert_int_equal(kthread_stop(task[i]), 0);
}

/* Trees. */

struct number {
	struct rb_node node;
	u32 value;
	bool present;
};

static bool insert_number(struct rb_root *root, struct number *number)
{
	struct rb_node **link = &root->rb_node, *parent = NULL;

	while (*link) {
		struct number *at = rb_entry(*link, struct number, node);

		if (at->value == number->value)
			return false;
		parent = *link;
		link = number->value < at->value ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&number->node, parent, link);
	rb_insert_color(&number->node, root);
	return true;
}

/* Returns the black height; checks order of links and colours. */
static int check_subtree(struct rb_node *node, struct rb_node *parent)
{
	int left, right;

	if (!node)
		return 1;
	assert_ptr_equal(rb_parent(node), parent);
	if (node->parent_red & 1)
		assert_true(parent && !(parent->parent_red & 1));
	left = check_subtree(node->rb_left, node);
	right = check_subtree(node->rb_right, node);
	assert_int_equal(left, right);
	return left + !(node->parent_red & 1);
}

static void check_tree(struct rb_root *root, struct number *numbers, u32 count)
{
	struct rb_node *up = rb_first(root), *down = rb_last(root);
	u32 i;

	check_subtree(root->rb_node, NULL);
	for (i = 0; i < count; i++) {
		if (numbers[i].present) {
			assert_ptr_equal(up, &numbers[i].node);
			up = rb_next(up);
		}
		if (numbers[count - 1 - i].present) {
			assert_ptr_equal(down, &numbers[count - 1 - i].node);
			down = rb_prev(down);
		}
	}
	assert_null(up);
	assert_null(down);
}

static void test_rbtree_against_a_model(void **state)
{
	static struct number numbers[300];
	struct rb_root root = RB_ROOT;
	struct number *pos, *next;
	u32 i, op, left = 0, seen = 0;

	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		numbers[i].value = i;
	for (op = 0; op < 20000; op++) {
		/* By turns mostly growing and mostly shrinking. */
		bool want = get_random_u32() % 10 < (op / 2000 % 2 ? 3 : 7);
		struct number *number = &numbers[get_random_u32() % ARRAY_SIZE(numbers)];

		if (want != number->present) {
			if (want)
				assert_true(insert_number(&root, number));
			else
				rb_erase(&number->node, &root);
			number->present = want;
		}
		if (op % 37 == 0)
			check_tree(&root, numbers, ARRAY_SIZE(numbers));
	}
	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		left += numbers[i].present;
	rbtree_postorder_for_each_entry_safe(pos, next, &root, node) {
		if (pos->node.rb_left)
			assert_int_equal(pos->node.rb_left->parent_red, 0xdead);
		if (pos->node.rb_right)
			assert_int_equal(pos->node.rb_right->parent_red, 0xdead);
		pos->node.parent_red = 0xdead;
		seen++;
	}
	assert_int_equal(seen, left);
	RB_CLEAR_NODE(&numbers[0].node);
	assert_true(RB_EMPTY_NODE(&numbers[0].node));
}

/* Lists. */

struct card {
	struct list_head list;
	struct hlist_node hash;
	u32 value, serial;
};

static int compare_cards(void *priv, const struct list_head *a, const struct list_head *b)
{
	const struct card *x = list_entry(a, struct card, list);
	const struct card *y = list_entry(b, struct card, list);

	++*(u32 *)priv;
	return x->value < y->value ? -1 : x->value > y->value;
}

static void test_list_sort_is_stable(void **state)
{
	static const u32 sizes[] = { 0, 1, 2, 3, 7, 64, 65, 1000 };
	static struct card cards[1000];
	u32 i, k, compared = 0;

	for (k = 0; k < ARRAY_SIZE(sizes); k++) {
		LIST_HEAD(head);
		struct card *card, *before = NULL;
		u32 count = 0;

		for (i = 0; i < sizes[k]; i++) {
			cards[i].value = get_random_u32() % 50;
			cards[i].serial = i;
			list_add_tail(&cards[i].list, &head);
		}
		list_sort(&compared, &head, compare_cards);
		list_for_each_entry(card, &head, list) {
			if (before)
				assert_true(before->value < card->value ||
					    (before->value == card->value && before->serial < card->serial));
			assert_ptr_equal(card->list.next->prev, &card->list);
			before = card;
			count++;
		}
		assert_int_equal(count, sizes[k]);
	}
	assert_in_range(compared, 1000, 15000);
}

static void test_lists(void **state)
{
	struct card cards[6] = { 0 }, *card, *next;
	struct hlist_head hash = HLIST_HEAD_INIT;
	struct hlist_node *node;
	LIST_HEAD(one);
	LIST_HEAD(two);
	u32 i, sum = 0;

	for (i = 0; i < 3; i++) {
		cards[i].value = i;
		list_add_tail(&cards[i].list, &one);
		cards[i + 3].value = i + 3;
		list_add(&cards[i + 3].list, &two);
		hlist_add_head(&cards[i].hash, &hash);
	}
	list_splice_tail_init(&two, &one);	/* 0 1 2 5 4 3 */
	assert_true(list_empty(&two));
	list_for_each_entry(card, &one, list)
		sum = sum * 10 + card->value;
	assert_int_equal(sum, 12543);
	list_move(&cards[3].list, &one);	/* 3 0 1 2 5 4 */
	list_move_tail(&cards[1].list, &two);
	assert_ptr_equal(list_first_entry(&one, struct card, list), &cards[3]);
	list_for_each_entry_safe(card, next, &one, list)
		list_del_init(&card->list);
	assert_true(list_empty(&one));
	assert_true(list_is_singular(&two));

	hlist_del_init(&cards[1].hash);
	hlist_del_init(&cards[1].hash);
	assert_true(hlist_unhashed(&cards[1].hash));
	sum = 0;
	hlist_for_each_entry_safe(card, node, &hash, hash) {
		sum += card->value;
		hlist_del(&card->hash);
	}
	assert_int_equal(sum, 2);
	assert_true(hlist_empty(&hash));
}

static int compare_u32(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

static void test_sort(void **state)
{
	u32 small[501], i, size;
	struct { u32 key, copy; } big[100];

	for (size = 0; size < ARRAY_SIZE(small); size += 1 + size / 3) {
		for (i = 0; i < size; i++)
			small[i] = get_random_u32() % 1000;
		sort(small, size, sizeof(small[0]), compare_u32, NULL);
		for (i = 1; i < size; i++)
			assert_true(small[i - 1] <= small[i]);
	}
	for (i = 0; i < ARRAY_SIZE(big); i++)
		big[i].key = big[i].copy = get_random_u32();
	sort(big, ARRAY_SIZE(big), sizeof(big[0]), compare_u32, NULL);
	for (i = 1; i < ARRAY_SIZE(big); i++)
		assert_true(big[i - 1].key <= big[i].key && big[i].key == big[i].copy);
}

/* Lock-free stack: each thread pushes its own nodes, all take. */

struct pushed {
	struct llist_node node;
	u32 value;
};

#define PUSHES 20000

static struct llist_head stack;
static atomic64_t stack_sum, stack_turn;
static struct pushed stack_nodes[THREADS][PUSHES];

static void take_all(void)
{
	struct pushed *pos, *next;
	struct llist_node *first = llist_reverse_order(llist_del_all(&stack));

	llist_for_each_entry_safe(pos, next, first, node) {
		pos->node.next = NULL;
		atomic64_add(pos->value, &stack_sum);
	}
}

static int push_and_take(void *data)
{
	struct pushed *mine = stack_nodes[atomic64_inc_return(&stack_turn) - 1];
	u32 i;

	for (i = 0; i < PUSHES; i++) {
		mine[i].value = i;
		llist_add(&mine[i].node, &stack);
		if (i % 64 == 0)
			take_all();
	}
	return 0;
}

static void test_llist_loses_nothing(void **state)
{
	struct pushed one, two;

	init_llist_head(&stack);
	assert_true(llist_add(&one.node, &stack));
	assert_false(llist_add(&two.node, &stack));
	assert_ptr_equal(llist_del_all(&stack), &two.node);
	assert_true(llist_empty(&stack));
	in_threads(push_and_take, NULL);
	take_all();
	assert_int_equal(atomic64_read(&stack_sum), (u64)THREADS * PUSHES * (PUSHES - 1) / 2);
}

/* Locks. */

static struct {
	spinlock_t spin;
	struct mutex mutex;
	struct rw_semaphore rwsem;
	u64 a, b, c, d;
	atomic_t value;
} locked;

static int take_locks(void *data)
{
	int i;

	for (i = 0; i < 20000; i++) {
		spin_lock(&locked.spin);
		locked.a++;
		spin_unlock(&locked.spin);
		mutex_lock(&locked.mutex);
		locked.b++;
		mutex_unlock(&locked.mutex);
		if (i % 4 == 0) {
			down_write(&locked.rwsem);
			locked.c++;
			locked.d++;
			up_write(&locked.rwsem);
		} else {
			down_read(&locked.rwsem);
			if (locked.c != locked.d)
				return -EIO;
			up_read(&locked.rwsem);
		}
		atomic_add_unless(&locked.value, 1, 5000);
	}
	return 0;
}

static void test_locks_exclude(void **state)
{
	spin_lock_init(&locked.spin);
	mutex_init(&locked.mutex);
	init_rwsem(&locked.rwsem);
	in_threads(take_locks, NULL);
	assert_int_equal(locked.a, THREADS * 20000);
	assert_int_equal(locked.b, THREADS * 20000);
	assert_int_equal(locked.c, THREADS * 5000);
	assert_int_equal(atomic_read(&locked.value), 5000);

	assert_true(mutex_trylock(&locked.mutex));
	assert_true(mutex_is_locked(&locked.mutex));
	assert_false(mutex_trylock(&locked.mutex));
	mutex_unlock(&locked.mutex);
	assert_false(mutex_is_locked(&locked.mutex));
	assert_true(spin_trylock(&locked.spin));
	assert_false(spin_trylock(&locked.spin));
	spin_unlock(&locked.spin);
	down_read(&locked.rwsem);
	assert_true(down_read_trylock(&locked.rwsem));
	assert_false(down_write_trylock(&locked.rwsem));
	up_read(&locked.rwsem);
	up_read(&locked.rwsem);
	assert_true(down_write_trylock(&locked.rwsem));
	assert_false(down_read_trylock(&locked.rwsem));
	up_write(&locked.rwsem);
}

/* Waiting.  A lost wake-up here is a test that never ends: alarm(2) in main() ends it. */

#define ROUNDS 30000

static struct {
	wait_queue_head_t ping, pong;
	atomic_t ball;		/* even: ours */
} game;

static int play(void *data)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		wait_event(game.ping, atomic_read(&game.ball) == 2 * i + 1);
		atomic_set(&game.ball, 2 * i + 2);
		wake_up(&game.pong);
	}
	return 7;
}

#ifdef TUX3_LOCKDEP
static struct lock_world {
	struct mutex mutex;
	spinlock_t spin;
	struct rw_semaphore sem;
	struct { struct lockdep_map dep_map; } scope;
} lock_world;

static void take_mutex(void) { mutex_lock(&lock_world.mutex); }
static void leave_mutex(void) { mutex_unlock(&lock_world.mutex); }
static void try_spin(void) { spin_trylock(&lock_world.spin); }
static void leave_spin(void) { spin_unlock(&lock_world.spin); }
static void sem_read(void) { down_read(&lock_world.sem); }
static void sem_read_end(void) { up_read(&lock_world.sem); }
static void sem_write(void) { down_write(&lock_world.sem); }
static void sem_write_end(void) { up_write(&lock_world.sem); }
static void enter(void) { rwsem_acquire_read(&lock_world.scope.dep_map, 0, 0, _THIS_IP_); }
static void leave(void) { rwsem_release(&lock_world.scope.dep_map, _THIS_IP_); }
static void nothing(void) { }

static void need_mutex(void) { lockdep_assert_held(&lock_world.mutex); }
static void need_spin(void) { lockdep_assert_held(&lock_world.spin); }
static void need_sem(void) { lockdep_assert_held(&lock_world.sem); }
static void need_sem_write(void) { lockdep_assert_held_write(&lock_world.sem); }
static void need_no_mutex(void) { lockdep_assert_not_held(&lock_world.mutex); }
static void need_outside(void) { lockdep_assert_not_held(&lock_world.scope); }

/* In a process of its own: does it end there? */
static bool dies(void (*before)(void), void (*assertion)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		before();
		assertion();
		_exit(0);
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

static int hold_in_thread(void *data)
{
	take_mutex();
	complete(data);
	while (!kthread_should_stop())
		cond_resched();
	leave_mutex();
	return 0;
}

/* In builds for tests: who asserts a lock, and does not have it, ends. */
static void test_locks_know_their_owner(void **state)
{
	struct completion held;
	struct task_struct *other;

	mutex_init(&lock_world.mutex);
	spin_lock_init(&lock_world.spin);
	init_rwsem(&lock_world.sem);
	assert_true(dies(nothing, need_mutex));
	assert_false(dies(take_mutex, need_mutex));
	assert_true(dies(take_mutex, need_no_mutex));
	assert_true(dies(nothing, need_spin));
	assert_false(dies(try_spin, need_spin));
	assert_true(dies(nothing, need_sem));
	assert_false(dies(sem_read, need_sem));
	assert_true(dies(sem_read, need_sem_write));
	assert_false(dies(sem_write, need_sem_write));
	assert_false(dies(sem_write, need_sem));
	assert_true(dies(enter, need_outside));
	assert_false(dies(nothing, need_outside));

	/* Given back, it is not held any more. */
	take_mutex(), leave_mutex();
	try_spin(), leave_spin();
	sem_read(), sem_read_end();
	sem_write(), sem_write_end();
	enter(), leave();
	assert_true(dies(nothing, need_mutex));
	assert_true(dies(nothing, need_spin));
	assert_true(dies(nothing, need_sem));
	assert_false(dies(nothing, need_outside));

	/* Nobody gives back what he has not, or takes what he has. */
	assert_true(dies(nothing, leave_mutex));
	assert_true(dies(nothing, leave_spin));
	assert_false(dies(take_mutex, leave_mutex));
	assert_true(dies(take_mutex, take_mutex));

	/* That somebody has it is not enough. */
	init_completion(&held);
	other = kthread_run(hold_in_thread, &held, "holder");
	wait_for_completion(&held);
	assert_true(dies(nothing, need_mutex));
	assert_false(dies(nothing, need_no_mutex));
	kthread_stop(other);
}
#endif

static void test_wait_loses_no_wakeup(void **state)
{
	struct task_struct *task;
	int i;

	init_waitqueue_head(&game.ping);
	init_waitqueue_head(&game.pong);
	task = kthread_run(play, NULL, "player");
	for (i = 0; i < ROUNDS; i++) {
		atomic_set(&game.ball, 2 * i + 1);
		wake_up(&game.ping);
		wait_event(game.pong, atomic_read(&game.ball) == 2 * i + 2);
	}
	assert_int_equal(kthread_stop(task), 7);
	assert_int_equal(game.ping.waiters, 0);
	assert_int_equal(game.pong.waiters, 0);
}

/* Many waiters of one queue: tokens, each taken once. */

static struct {
	wait_queue_head_t queue;
	atomic_t tokens, taken;
} pot;

static bool take_token(void)
{
	return atomic_add_unless(&pot.tokens, -1, 0);
}

static int take_tokens(void *data)
{
	int i;

	for (i = 0; i < 5000; i++) {
		wait_event(pot.queue, take_token());
		atomic_inc(&pot.taken);
	}
	return 0;
}

static int give_tokens(void *data)
{
	int i;

	for (i = 0; i < THREADS * 5000; i++) {
		atomic_inc(&pot.tokens);
		wake_up_all(&pot.queue);
		if (i % 1000 == 0)
			usleep(100);
	}
	return 0;
}

static void test_wait_with_many_waiters(void **state)
{
	struct task_struct *giver;

	init_waitqueue_head(&pot.queue);
	giver = kthread_run(give_tokens, NULL, "giver");
	in_threads(take_tokens, NULL);
	assert_int_equal(kthread_stop(giver), 0);
	assert_int_equal(atomic_read(&pot.taken), THREADS * 5000);
	assert_int_equal(atomic_read(&pot.tokens), 0);
}

static atomic_t flag;

static int set_flag_later(void *data)
{
	while (!waitqueue_active(data))		/* on a busy machine it may take long until somebody waits */
		usleep(1000);
	usleep(20000);
	atomic_set(&flag, 1);
	wake_up(data);
	return 0;
}

static void test_wait_with_timeout(void **state)
{
	wait_queue_head_t queue;
	struct task_struct *task;
	unsigned long begun = jiffies;
	long left;

	init_waitqueue_head(&queue);
	atomic_set(&flag, 0);
	assert_int_equal(wait_event_timeout(queue, atomic_read(&flag), msecs_to_jiffies(30)), 0);
	assert_true(time_after_eq(jiffies, begun + msecs_to_jiffies(30)));
	assert_int_equal(wait_event_timeout(queue, atomic_read(&flag), 0), 0);
	task = kthread_run(set_flag_later, &queue, "setter");
	left = wait_event_timeout(queue, atomic_read(&flag), msecs_to_jiffies(60000));
	assert_in_range(left, 1, msecs_to_jiffies(59990));
	assert_int_equal(wait_event_timeout(queue, atomic_read(&flag), 5), 5);
	assert_true(wait_event_timeout(queue, atomic_read(&flag), LONG_MAX) > 0);
	kthread_stop(task);
}

static wait_queue_head_t nobody_wakes;

static int sleep_until_stopped(void *data)
{
	wait_event(nobody_wakes, kthread_should_stop());
	return 3;
}

static int return_at_once(void *data)
{
	return 4;
}

static void test_kthread_stop_wakes_a_sleeper(void **state)
{
	int i;

	init_waitqueue_head(&nobody_wakes);
	for (i = 0; i < 500; i++) {
		struct task_struct *task = kthread_run(sleep_until_stopped, NULL, "sleeper");

		if (i % 3 == 0)
			usleep(100);
		assert_int_equal(kthread_stop(task), 3);
		assert_int_equal(kthread_stop(kthread_run(return_at_once, NULL, "quick")), 4);
	}
	assert_false(kthread_should_stop());
}

/* A completion on the stack is gone as soon as the waiter is through. */

static struct completion *handed_over;
static wait_queue_head_t handed_over_queue;

static int complete_many(void *data)
{
	struct completion *done;
	int i;

	for (i = 0; i < 10000; i++) {
		wait_event(handed_over_queue, smp_load_acquire(&handed_over));
		done = xchg(&handed_over, NULL);
		complete(done);
	}
	return 0;
}

static void test_completion_may_be_freed_at_once(void **state)
{
	struct task_struct *task;
	struct completion done;
	int i;

	init_waitqueue_head(&handed_over_queue);
	task = kthread_run(complete_many, NULL, "completer");
	for (i = 0; i < 10000; i++) {
		struct completion *mine = malloc(sizeof(*mine));

		init_completion(mine);
		smp_store_release(&handed_over, mine);
		wake_up(&handed_over_queue);
		wait_for_completion(mine);
		free(mine);
	}
	kthread_stop(task);

	init_completion(&done);
	complete(&done);
	complete(&done);
	wait_for_completion(&done);
	assert_true(completion_done(&done));
	wait_for_completion(&done);
	assert_false(completion_done(&done));
	complete_all(&done);
	complete(&done);
	for (i = 0; i < 100; i++)
		wait_for_completion(&done);
	assert_true(completion_done(&done));
}

/* Per-CPU counters. */

struct pcpu {
	atomic64_t count;
	char odd[9];
};

static int count_per_cpu(void *data)
{
	struct pcpu __percpu *counters = data;
	int i;

	for (i = 0; i < 50000; i++)
		atomic64_inc(&raw_cpu_ptr(counters)->count);
	return 0;
}

/* ---- work ---- */

#define WORKS 6

struct counted_work {
	struct work_struct work;
	u32 queued, done;	/* each time it was said to be queued it is done once */
	u32 inside;		/* by nobody else at once */
};

static void do_counted_work(struct work_struct *work)
{
	struct counted_work *counted = container_of(work, struct counted_work, work);

	if (__atomic_fetch_add(&counted->inside, 1, __ATOMIC_SEQ_CST))
		abort();
	if (__atomic_load_n(&counted->done, __ATOMIC_SEQ_CST) % 64 == 0)		/* somebody else has a look meanwhile */
		sched_yield();
	__atomic_fetch_add(&counted->done, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&counted->inside, 1, __ATOMIC_SEQ_CST);
}

struct work_desk {
	struct workqueue_struct *queue;
	struct counted_work works[WORKS];
};

static int queue_works(void *data)
{
	struct work_desk *desk = data;
	u32 i;

	for (i = 0; i < 20000; i++) {
		struct counted_work *counted = &desk->works[i % WORKS];

		if (queue_work(desk->queue, &counted->work))
			__atomic_fetch_add(&counted->queued, 1, __ATOMIC_SEQ_CST);
	}
	return 0;
}

static void test_work_is_done_once(void **state)
{
	struct work_desk desk = { .queue = alloc_workqueue("desk", WQ_UNBOUND, 3) };
	u32 i;

	assert_non_null(desk.queue);
	for (i = 0; i < WORKS; i++)
		INIT_WORK(&desk.works[i].work, do_counted_work);
	in_threads(queue_works, &desk);
	destroy_workqueue(desk.queue);
	for (i = 0; i < WORKS; i++) {
		assert_true(desk.works[i].queued > 0);
		assert_int_equal(desk.works[i].done, desk.works[i].queued);
	}
	destroy_workqueue(alloc_workqueue("never used", WQ_UNBOUND, 1));
}

static int queue_works_alone(void *data)
{
	static atomic_t here;

	atomic_inc(&here);
	while (atomic_read(&here) < THREADS)
		cond_resched();
	env_fail_threads(true);
	return queue_works(data);
}

/* With no worker at all, who queues does it, also what others queue while he is at it. */
static void test_work_is_done_without_threads(void **state)
{
	struct work_desk desk = { .queue = alloc_workqueue("alone", WQ_UNBOUND, 3) };
	u32 i;

	assert_non_null(desk.queue);
	for (i = 0; i < WORKS; i++)
		INIT_WORK(&desk.works[i].work, do_counted_work);
	in_threads(queue_works_alone, &desk);
	for (i = 0; i < WORKS; i++) {
		assert_true(desk.works[i].queued > 0);
		assert_int_equal(desk.works[i].done, desk.works[i].queued);
	}
	env_fail_threads(false);
	destroy_workqueue(desk.queue);
}

static void test_percpu_sums(void **state)
{
	struct pcpu __percpu *counters = alloc_percpu(struct pcpu);
	u64 sum = 0;
	int cpu;

	assert_int_equal((uintptr_t)per_cpu_ptr(counters, 0) % 64, 0);
	assert_int_equal((char *)per_cpu_ptr(counters, 1) - (char *)per_cpu_ptr(counters, 0), 64);
	in_threads(count_per_cpu, counters);
	for_each_possible_cpu(cpu)
		sum += atomic64_read(&per_cpu_ptr(counters, cpu)->count);
	assert_int_equal(sum, THREADS * 50000);
	free_percpu(counters);
}

/* Bitmaps. */

static void check_bitmap(const unsigned long *map, const bool *model, u32 size)
{
	u32 i, set = size, clear = size, weight = 0;

	assert_int_equal(find_next_bit(map, size, size), size);
	for (i = size; i-- > 0;) {
		if (model[i]) {
			set = i;
			weight++;
		} else {
			clear = i;
		}
		assert_int_equal(test_bit(i, map), model[i]);
		assert_int_equal(find_next_bit(map, size, i), set);
		assert_int_equal(find_next_zero_bit(map, size, i), clear);
	}
	assert_int_equal(bitmap_weight(map, size), weight);
}

static void test_bitmaps_against_a_model(void **state)
{
	static const u32 sizes[] = { 1, 63, 64, 65, 128, 200 };
	DECLARE_BITMAP(map, 200);
	bool model[200];
	u32 i, k, op;

	for (k = 0; k < ARRAY_SIZE(sizes); k++) {
		u32 size = sizes[k];

		memset(model, 0, sizeof(model));
		bitmap_zero(map, 200);
		for (op = 0; op < 400; op++) {
			u32 start = get_random_u32() % size;
			u32 bits = get_random_u32() % (size - start + 1);
			bool set = op & 1;

			if (op % 8 < 4) {
				(set ? bitmap_set : bitmap_clear)(map, start, bits);
				for (i = 0; i < bits; i++)
					model[start + i] = set;
			} else if (set) {
				assert_int_equal(__test_and_set_bit(start, map), model[start]);
				model[start] = true;
			} else {
				clear_bit(start, map);
				model[start] = false;
			}
			if (op % 5 == 0)
				check_bitmap(map, model, size);
		}
	}
}

/* Checksums. */

static void test_crc32c(void **state)
{
	static u8 data[10000];
	u32 i, zeros, crc;

	assert_int_equal(~crc32c(~0u, "123456789", 9), 0xe3069283);
	/* RFC 3720, B.4 */
	assert_int_equal(~crc32c(~0u, data, 32), 0x8a9136aa);
	memset(data, 0xff, 32);
	assert_int_equal(~crc32c(~0u, data, 32), 0x62a8ab43);
	for (i = 0; i < 32; i++)
		data[i] = i;
	assert_int_equal(~crc32c(~0u, data, 32), 0x46dd794e);

	get_random_bytes(data, sizeof(data));
	for (i = 0; i < sizeof(data); i += 1 + i / 16)
		assert_int_equal(crc32c(i, data + i % 13, sizeof(data) - 13 - i),
				 env_crc32c_tables(i, data + i % 13, sizeof(data) - 13 - i));
	zeros = crc32c(~0u, data, 5000);
	crc = crc32c(zeros, data + 5000, 5000);
	assert_int_equal(crc, crc32c(~0u, data, 10000));
	assert_int_equal(crc32c(5, data, 0), 5);
}

static void test_siphash_vectors(void **state)
{
	/* From the reference implementation: key 00 01 .. 0f, message 00 01 .. of each length. */
	static const u64 expected[] = {
		0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
		0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
		0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
		0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
	};
	siphash_key_t key = { { 0x0706050403020100, 0x0f0e0d0c0b0a0908 } };
	u8 message[16];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(expected); i++) {
		assert_int_equal(siphash(message, i, &key), expected[i]);
		message[i] = i;
	}
}

/* Memory. */

static void test_allocations_fail_when_told(void **state)
{
	long before = env_alloc_count();
	struct kmem_cache *cache = kmem_cache_create("test", 24, 64, 0, NULL);
	void *p[6];
	int i;

	assert_int_equal(env_alloc_count() - before, 1);
	env_fail_alloc_at(3);
	p[0] = kmalloc(10, GFP_KERNEL);
	p[1] = kzalloc(10, GFP_NOFS);
	p[2] = kmem_cache_alloc(cache, GFP_KERNEL);
	p[3] = kvmalloc(10, GFP_KERNEL);
	p[4] = alloc_percpu(u64);
	for (i = 0; i < 5; i++)
		assert_int_equal(p[i] == NULL, i == 2);
	kfree(p[0]);
	kfree(p[1]);
	kvfree(p[3]);
	free_percpu(p[4]);

	env_fail_alloc_at(-2);
	p[0] = kcalloc(2, 10, GFP_KERNEL);
	p[1] = kmemdup("x", 2, GFP_KERNEL);
	p[2] = kmalloc(10, GFP_KERNEL);
	p[3] = kmalloc(10, GFP_KERNEL | __GFP_NOFAIL);
	env_fail_alloc_at(0);
	p[4] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ZERO);
	assert_true(p[0] && !p[1] && !p[2] && !p[3] && p[4]);
	assert_int_equal((uintptr_t)p[4] % 64, 0);
	assert_null(memchr_inv(p[4], 0, 24));
	assert_null(kcalloc(SIZE_MAX / 2, 3, GFP_KERNEL));
	assert_int_equal(env_alloc_count() - before, 1 + 5 + 4 + 1);
	kfree(p[0]);
	kfree(p[3]);
	kmem_cache_free(cache, p[4]);
	kmem_cache_destroy(cache);
}

/* Small things. */

static char last_message[100];
static int last_level, messages;

static void keep_message(int level, const char *message)
{
	last_level = level;
	strscpy(last_message, message, sizeof(last_message));
	messages++;
}

static u64 noon(void)
{
	return 12 * 3600 * (u64)NSEC_PER_SEC + 5;
}

static void test_hooks(void **state)
{
	struct timespec64 ts;
	u64 first;
	int i;

	env_set_log(keep_message);
	pr_err("block %llu is %s\n", 5ULL, "bad");
	assert_string_equal(last_message, "block 5 is bad");
	assert_int_equal(last_level, 3);
	for (i = 0; i < 3; i++)
		assert_true(WARN_ON_ONCE(i < 3));
	assert_false(WARN_ON_ONCE(i < 3));
	assert_int_equal(messages, 2);
	assert_non_null(strstr(last_message, "test_env.c:"));
	env_set_log(NULL);

	env_set_clock(noon);
	ktime_get_real_ts64(&ts);
	assert_true(ts.tv_sec == 12 * 3600 && ts.tv_nsec == 5);
	env_set_clock(NULL);
	ktime_get_real_ts64(&ts);
	assert_true(ts.tv_sec > 1500000000);

	env_set_random_seed(77);
	first = get_random_u64();
	assert_int_not_equal(first, get_random_u64());
	env_set_random_seed(77);
	assert_int_equal(first, get_random_u64());
	env_set_random_seed(0);
	assert_int_not_equal(get_random_u64(), get_random_u64());
}

static void test_small_things(void **state)
{
	u8 bytes[200] = { 0 };
	char text[4];
	__le32 le = cpu_to_le32(5);
	u32 a = 5, b = 9;

	assert_int_equal(min(a, b) + max(a, 7) + min_t(u64, a, b) + clamp(b, 1, 6), 5 + 7 + 5 + 6);
	assert_int_equal(min(-5L, 3), -5);
	swap(a, b);
	assert_int_equal(a, 9);
	assert_int_equal(round_up(4097ULL, 4096) + round_down(4097, 4096), 3 * 4096);
	assert_int_equal(roundup(10, 3) + rounddown(10, 3) + DIV_ROUND_UP(10, 3), 12 + 9 + 4);
	assert_int_equal(ilog2(4096) + ilog2(4097) + roundup_pow_of_two(5) + roundup_pow_of_two(8), 40);
	assert_true(is_power_of_2(64) && !is_power_of_2(0) && !is_power_of_2(6));
	assert_true(hash_64(12345, 7) < 128 && hash_64(1, 7) != hash_64(2, 7));

	assert_true(IS_ERR(ERR_PTR(-EIO)) && PTR_ERR(ERR_PTR(-EIO)) == -EIO && !IS_ERR(bytes));
	assert_true(IS_ERR_OR_NULL(NULL) && !IS_ERR(NULL));
	le32_add_cpu(&le, 7);
	assert_int_equal(le32_to_cpu(le), 12);
	put_unaligned_le64(0x0102030405060708, bytes + 1);
	assert_true(bytes[1] == 8 && bytes[8] == 1);
	assert_int_equal(get_unaligned_le32(bytes + 3), 0x03040506);
	assert_int_equal(get_unaligned_le16(bytes + 1), 0x0708);
	put_unaligned_le64(0, bytes + 1);

	assert_null(memchr_inv(bytes, 0, sizeof(bytes)));
	bytes[150] = 1;
	assert_ptr_equal(memchr_inv(bytes, 0, sizeof(bytes)), bytes + 150);
	assert_ptr_equal(memchr_inv(bytes + 140, 0, 20), bytes + 150);
	assert_int_equal(strscpy(text, "abc", sizeof(text)), 3);
	assert_int_equal(strscpy(text, "abcd", sizeof(text)), -E2BIG);
	assert_string_equal(text, "abc");
	assert_int_equal(scnprintf(text, sizeof(text), "%d", 123456), 3);
	assert_int_equal(atomic_xchg(&(atomic_t)ATOMIC_INIT(4), 5), 4);
	assert_int_equal(cmpxchg(&a, 9, 10), 9);
	assert_int_equal(cmpxchg(&a, 9, 11), 10);
	assert_int_equal(a, 10);
}

static void test_memory_is_counted(void **state)
{
	void *small, *large;

	env_memory_count(true);
	small = kmalloc(1000, GFP_KERNEL);
	large = kvmalloc(100000, GFP_KERNEL);
	kvfree(large);
	small = krealloc(small, 20000, GFP_KERNEL);
	kfree(small);
	assert_true(env_memory_peak() >= 101000 && env_memory_peak() < 140000);
	env_memory_count(false);
	kfree(kmalloc(200000, GFP_KERNEL));
	assert_int_equal(env_memory_peak(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rbtree_against_a_model),
#ifdef TUX3_LOCKDEP
		cmocka_unit_test(test_locks_know_their_owner),
#endif
		cmocka_unit_test(test_list_sort_is_stable),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_sort),
		cmocka_unit_test(test_llist_loses_nothing),
		cmocka_unit_test(test_locks_exclude),
		cmocka_unit_test(test_wait_loses_no_wakeup),
		cmocka_unit_test(test_wait_with_many_waiters),
		cmocka_unit_test(test_wait_with_timeout),
		cmocka_unit_test(test_kthread_stop_wakes_a_sleeper),
		cmocka_unit_test(test_completion_may_be_freed_at_once),
		cmocka_unit_test(test_work_is_done_once),
		cmocka_unit_test(test_work_is_done_without_threads),
		cmocka_unit_test(test_percpu_sums),
		cmocka_unit_test(test_bitmaps_against_a_model),
		cmocka_unit_test(test_crc32c),
		cmocka_unit_test(test_siphash_vectors),
		cmocka_unit_test(test_allocations_fail_when_told),
		cmocka_unit_test(test_hooks),
		cmocka_unit_test(test_small_things),
		cmocka_unit_test(test_memory_is_counted),
	};

	alarm(300);	/* a wake-up that was lost */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
