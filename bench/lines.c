// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which cache lines do all CPUs write?  Two threads on two CPUs make the same operation, each in a directory of its own; a line
 * that both wrote goes from one CPU's cache to the other's with each operation.
 *
 *	lines IMAGE OPERATIONS		IMAGE is made anew
 *
 * The library is compiled with gcc's instrumentation for ThreadSanitizer, but the functions that this calls for each access
 * are those below: they note the lines that the thread writes while it is in an operation.  Not seen: what libc does
 * (the allocator, memcpy), and the stack.  The volume's own thread is not looked at.
 *
 * For each operation "NAME FRONT-END-WRITES" (lines that one operation writes, on the average), then a line for each shared one:
 * address, share of the operations that wrote it (of the thread where that is less), in thousandths, and from where, for
 * addr2line.
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "bench.h"

#define LINE_SHIFT 6
#define SLOTS (1u << 18)
#define VOLUME_BYTES (4ull << 30)
#define BLOCK 4096u

/* ---- what a thread writes ---- */

struct line {
	uintptr_t line;			/* 0: free */
	uint32_t operations, last;	/* that wrote it */
	void *from;			/* the first time */
};

struct recorder {
	struct line lines[SLOTS];
	uint32_t operation;		/* from 1 */
	uint64_t writes;		/* lines written, summed over operations */
	uintptr_t stack, stack_end;
};

static __thread struct recorder *recording;

static void note(uintptr_t line, void *from)
{
	struct recorder *recorder = recording;
	uint32_t at = line * 0x9e3779b97f4a7c15ull >> 46;

	while (recorder->lines[at].line && recorder->lines[at].line != line)
		at = (at + 1) % SLOTS;
	if (!recorder->lines[at].line)
		recorder->lines[at] = (struct line){ .line = line, .from = from };
	if (recorder->lines[at].last == recorder->operation)
		return;
	recorder->lines[at].last = recorder->operation;
	recorder->lines[at].operations++;
	recorder->writes++;
}

static inline void wrote(volatile void *address, uint64_t bytes, void *from)
{
	uintptr_t at = (uintptr_t)address, line;

	if (!recording || (at >= recording->stack && at < recording->stack_end))
		return;
	for (line = at >> LINE_SHIFT; line <= (at + bytes - 1) >> LINE_SHIFT; line++)
		note(line, from);
}

/* ---- what the compiler calls ---- */

#define FROM __builtin_return_address(0)
void __tsan_init(void) { }
void __tsan_func_entry(void *caller) { }
void __tsan_func_exit(void) { }
void __tsan_vptr_update(void **at, void *value) { wrote(at, sizeof(*at), FROM); }
void __tsan_vptr_read(void **at) { }
void __tsan_read_range(void *at, unsigned long bytes) { }
void __tsan_write_range(void *at, unsigned long bytes) { wrote(at, bytes, FROM); }
void __tsan_atomic_thread_fence(int order) { }
void __tsan_atomic_signal_fence(int order) { }

#define ACCESS(bytes) \
	void __tsan_read##bytes(void *at) { } \
	void __tsan_write##bytes(void *at) { wrote(at, bytes, FROM); } \
	void __tsan_volatile_read##bytes(void *at) { } \
	void __tsan_volatile_write##bytes(void *at) { wrote(at, bytes, FROM); } \
	void __tsan_unaligned_read##bytes(void *at) { } \
	void __tsan_unaligned_write##bytes(void *at) { wrote(at, bytes, FROM); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)

/* A compare that fails takes the line all the same. */
#define CHANGE(bits, type, name, builtin) \
	type __tsan_atomic##bits##_##name(volatile type *at, type value, int order) \
	{ \
		wrote(at, sizeof(type), FROM); \
		return builtin(at, value, __ATOMIC_SEQ_CST); \
	}
#define COMPARE(bits, type, name) \
	int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type value, int order, int failed) \
	{ \
		wrote(at, sizeof(type), FROM); \
		return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	}
#define ATOMIC(bits, type) \
	type __tsan_atomic##bits##_load(const volatile type *at, int order) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); } \
	void __tsan_atomic##bits##_store(volatile type *at, type value, int order) \
	{ \
		wrote(at, sizeof(type), FROM); \
		__atomic_store_n(at, value, __ATOMIC_SEQ_CST); \
	} \
	CHANGE(bits, type, exchange, __atomic_exchange_n) \
	CHANGE(bits, type, fetch_add, __atomic_fetch_add) \
	CHANGE(bits, type, fetch_sub, __atomic_fetch_sub) \
	CHANGE(bits, type, fetch_and, __atomic_fetch_and) \
	CHANGE(bits, type, fetch_or, __atomic_fetch_or) \
	CHANGE(bits, type, fetch_xor, __atomic_fetch_xor) \
	COMPARE(bits, type, strong) COMPARE(bits, type, weak)
ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, uint64_t)

/* ---- operations ---- */

static struct tux3 *volume;
static char block[BLOCK];

struct worker {
	unsigned int cpu;
	struct tux3_node *dir;
	struct recorder recorder;
};

static struct worker workers[2];

static void name_of(char *name, uint32_t n)
{
	snprintf(name, 32, "file%u", n);
}

static struct tux3_node *node_of(struct tux3_node *dir, uint32_t n)
{
	struct tux3_node *node;
	char name[32];

	name_of(name, n);
	must(tux3_lookup(dir, NULL, name, &node), "lookup");
	return node;
}

static void op_create(struct tux3_node *dir, uint32_t n)
{
	char name[32];

	name_of(name, n);
	must(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, NULL), "create");
}

static void on_node(struct tux3_node *dir, uint32_t n, void (*fn)(struct tux3_node *node))
{
	struct tux3_node *node = node_of(dir, n);

	fn(node);
	tux3_node_put(node, 1);
}

static void write_block(struct tux3_node *node) { must(tux3_write(node, block, sizeof(block), 0), "write"); }
static void read_block(struct tux3_node *node) { must(tux3_read(node, block, sizeof(block), 0), "read"); }
static void set_mode(struct tux3_node *node)
{
	must(tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE), "chmod");
}

static void look(struct tux3_node *node)
{
	struct tux3_stat stat;

	must(tux3_stat_node(node, &stat), "stat");
}

static void op_write(struct tux3_node *dir, uint32_t n) { on_node(dir, n, write_block); }
static void op_read(struct tux3_node *dir, uint32_t n) { on_node(dir, n, read_block); }
static void op_chmod(struct tux3_node *dir, uint32_t n) { on_node(dir, n, set_mode); }
static void op_stat(struct tux3_node *dir, uint32_t n) { on_node(dir, n, look); }

static void op_rename(struct tux3_node *dir, uint32_t n)
{
	char from[32], to[40];

	name_of(from, n);
	snprintf(to, sizeof(to), "%s.new", from);
	must(tux3_rename(dir, from, dir, to, 0, NULL), "rename");
	must(tux3_rename(dir, to, dir, from, 0, NULL), "rename");
}

static void op_unlink(struct tux3_node *dir, uint32_t n)
{
	char name[32];

	name_of(name, n);
	must(tux3_unlink(dir, NULL, name), "unlink");
}

/* In this order: each finds what the one before left.  durable: that is committed first. */
static const struct operation {
	const char *name;
	void (*fn)(struct tux3_node *dir, uint32_t n);
	bool durable;
} operations[] = {
	{ "create", op_create, false },
	{ "write-new", op_write, false },
	{ "overwrite-dirty", op_write, false },
	{ "overwrite", op_write, true },
	{ "read", op_read, true },
	{ "stat", op_stat, true },
	{ "chmod", op_chmod, true },
	{ "rename-twice", op_rename, true },
	{ "unlink", op_unlink, true },
};

static const struct operation *operation;
static uint32_t count;

static void *work(void *ctx)
{
	struct worker *worker = ctx;
	pthread_attr_t attr;
	size_t bytes;
	void *stack;
	cpu_set_t set;
	uint32_t n;

	CPU_ZERO(&set);
	CPU_SET(worker->cpu, &set);
	must(-pthread_setaffinity_np(pthread_self(), sizeof(set), &set), "affinity");
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstack(&attr, &stack, &bytes);
	pthread_attr_destroy(&attr);
	memset(&worker->recorder, 0, sizeof(worker->recorder));
	worker->recorder.stack = (uintptr_t)stack;
	worker->recorder.stack_end = (uintptr_t)stack + bytes;
	for (n = 0; n < 2 * count; n++) {	/* the first half is to warm up */
		worker->recorder.operation++;
		recording = n < count ? NULL : &worker->recorder;
		operation->fn(worker->dir, n);
		recording = NULL;
	}
	return NULL;
}

static const struct line *line_of(const struct recorder *recorder, uintptr_t line)
{
	uint32_t at = line * 0x9e3779b97f4a7c15ull >> 46;

	while (recorder->lines[at].line && recorder->lines[at].line != line)
		at = (at + 1) % SLOTS;
	return recorder->lines[at].line ? &recorder->lines[at] : NULL;
}

static void tell(void)
{
	const struct recorder *one = &workers[0].recorder, *two = &workers[1].recorder;
	extern const char __executable_start;

	printf("%s %.1f\n", operation->name, (one->writes + two->writes) / 2.0 / count);
	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct line *line = &one->lines[i], *other = line->line ? line_of(two, line->line) : NULL;

		if (other)
			printf("  %jx %u %jx\n", (uintmax_t)line->line << LINE_SHIFT,
			       (line->operations < other->operations ? line : other)->operations * 1000 / count,
			       (uintmax_t)((uintptr_t)line->from - (uintptr_t)&__executable_start));
	}
}

int main(int argc, char **argv)
{
	struct tux3_options options = { .age_ms = 3600000, .dirty_bytes = 1 << 30 };
	struct tux3_node *root;
	pthread_t thread;
	uint32_t i;

	if (argc != 3)
		die("lines IMAGE OPERATIONS");
	count = atoi(argv[2]);
	must_format(argv[1], VOLUME_BYTES);
	volume = must_open(argv[1], &options);
	root = tux3_root(volume);
	for (i = 0; i < 2; i++) {
		char name[8];

		workers[i].cpu = i;
		snprintf(name, sizeof(name), "%u", i);
		must(tux3_mknod(root, NULL, name, S_IFDIR | 0755, 0, 0, &workers[i].dir), "mkdir");
	}
	for (i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		operation = &operations[i];
		if (operation->durable)
			must(tux3_sync(volume), "sync");
		/* One after the other: who waits for whom does not change what is written. */
		for (uint32_t w = 0; w < 2; w++) {
			must(-pthread_create(&thread, NULL, work, &workers[w]), "thread");
			pthread_join(thread, NULL);
		}
		tell();
	}
	for (i = 0; i < 2; i++)
		tux3_node_put(workers[i].dir, 1);
	tux3_node_put(root, 1);
	must(tux3_close(volume), "close");
	return 0;
}
