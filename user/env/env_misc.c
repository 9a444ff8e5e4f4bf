/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What core/env.h promises of memory, time, chance, messages and strings; and the hooks that tests
 * have into them: fault.h, clock.h, log.h.  No locks here, only atomics.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "core/env.h"
#include "clock.h"
#include "fault.h"
#include "log.h"

/* Memory. */

#define NOFAIL_TRIES	1000
#define NOFAIL_TRY_US	10000

static bool alloc_counting;
static long alloc_count;
static long alloc_fail_at;	/* a value of alloc_count; negative: from -alloc_fail_at on */
static __thread bool alloc_paused;

void env_fail_alloc_at(long nth)
{
	long now = __atomic_load_n(&alloc_count, __ATOMIC_SEQ_CST);
	long at = nth > 0 ? now + nth : nth < 0 ? nth - now : 0;

	__atomic_store_n(&alloc_fail_at, at, __ATOMIC_SEQ_CST);
	if (nth)
		WRITE_ONCE(alloc_counting, true);
}

long env_alloc_count(void)
{
	WRITE_ONCE(alloc_counting, true);
	return __atomic_load_n(&alloc_count, __ATOMIC_SEQ_CST);
}

void env_fail_alloc_pause(bool on)
{
	alloc_paused = on;
}

static noinline bool count_allocation(void)
{
	long nr, at;

	if (alloc_paused)
		return false;
	nr = __atomic_add_fetch(&alloc_count, 1, __ATOMIC_SEQ_CST);
	at = __atomic_load_n(&alloc_fail_at, __ATOMIC_SEQ_CST);
	if (!at)
		return false;
	return at > 0 ? nr == at : nr >= -at;
}

static inline bool alloc_fails(void)
{
	return unlikely(READ_ONCE(alloc_counting)) && count_allocation();
}

static bool memory_counting;
static long memory_now, memory_peak;

void env_memory_count(bool on)
{
	__atomic_store_n(&memory_now, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&memory_peak, 0, __ATOMIC_SEQ_CST);
	WRITE_ONCE(memory_counting, on);
}

long env_memory_peak(void)
{
	return __atomic_load_n(&memory_peak, __ATOMIC_SEQ_CST);
}

static noinline void count_memory(void *ptr, int sign)
{
	long now = __atomic_add_fetch(&memory_now, sign * (long)malloc_usable_size(ptr), __ATOMIC_SEQ_CST);
	long peak = __atomic_load_n(&memory_peak, __ATOMIC_SEQ_CST);

	while (now > peak && !__atomic_compare_exchange_n(&memory_peak, &peak, now, false, __ATOMIC_SEQ_CST,
							 __ATOMIC_SEQ_CST))
		;
}

/* Passes ptr on. */
static inline void *memory_got(void *ptr)
{
	if (unlikely(READ_ONCE(memory_counting)) && ptr)
		count_memory(ptr, 1);
	return ptr;
}

static inline void *memory_given(const void *ptr)
{
	if (unlikely(READ_ONCE(memory_counting)) && ptr)
		count_memory((void *)(uintptr_t)ptr, -1);
	return (void *)(uintptr_t)ptr;
}

/*
 * Is malloc() to be asked again?  Whoever must not fail waits until others give memory back, as in the kernel; but not for
 * ever, since nobody is ended for it here.
 */
static bool memory_wait(gfp_t flags, unsigned int *tries)
{
	if (!(flags & __GFP_NOFAIL) || ++*tries > NOFAIL_TRIES)
		return false;
	usleep(NOFAIL_TRY_US);
	return true;
}

void *kmalloc(size_t bytes, gfp_t flags)
{
	unsigned int tries = 0;
	void *ptr;

	if (alloc_fails())
		return NULL;
	do {
		ptr = flags & __GFP_ZERO ? calloc(1, bytes) : malloc(bytes);
	} while (unlikely(!ptr) && memory_wait(flags, &tries));
	return memory_got(ptr);
}

void *kmalloc_array(size_t n, size_t bytes, gfp_t flags)
{
	size_t total;

	return __builtin_mul_overflow(n, bytes, &total) ? NULL : kmalloc(total, flags);
}

void *kcalloc(size_t n, size_t bytes, gfp_t flags)
{
	return kmalloc_array(n, bytes, flags | __GFP_ZERO);
}

void *krealloc(const void *ptr, size_t bytes, gfp_t flags)
{
	unsigned int tries = 0;
	void *more;

	if (alloc_fails())
		return NULL;
	memory_given(ptr);
	do {
		more = realloc((void *)(uintptr_t)ptr, bytes);
	} while (unlikely(!more) && memory_wait(flags, &tries));
	return memory_got(more);
}

void *kmemdup(const void *src, size_t bytes, gfp_t flags)
{
	void *copy = kmalloc(bytes, flags);

	return copy ? memcpy(copy, src, bytes) : NULL;
}

void kfree(const void *ptr)
{
	free(memory_given(ptr));
}

struct kmem_cache {
	size_t bytes;
	size_t align;
	void (*ctor)(void *object);
};

struct kmem_cache *kmem_cache_create(const char *name, unsigned int bytes, unsigned int align,
				     unsigned int flags, void (*ctor)(void *object))
{
	struct kmem_cache *cache = kmalloc(sizeof(*cache), GFP_KERNEL);

	if (!cache)
		return NULL;
	if (flags & SLAB_HWCACHE_ALIGN && align < 64)
		align = 64;
	*cache = (struct kmem_cache){ .bytes = bytes, .align = align, .ctor = ctor };
	return cache;
}

void *kmem_cache_alloc(struct kmem_cache *cache, gfp_t flags)
{
	unsigned int tries = 0;
	void *object = NULL;

	if (cache->align <= 16) {
		object = kmalloc(cache->bytes, flags);
	} else if (!alloc_fails()) {
		do {
			object = aligned_alloc(cache->align, roundup(cache->bytes, cache->align));
		} while (unlikely(!object) && memory_wait(flags, &tries));
		memory_got(object);
		if (object && flags & __GFP_ZERO)
			memset(object, 0, cache->bytes);
	}
	if (object && cache->ctor)
		cache->ctor(object);
	return object;
}

void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	free(memory_given(object));
}

void kmem_cache_destroy(struct kmem_cache *cache)
{
	kfree(cache);
}

void *env_alloc_percpu(size_t stride)
{
	void *ptr = alloc_fails() ? NULL : aligned_alloc(ENV_PERCPU_ALIGN, stride * env_cpus);

	return ptr ? memset(ptr, 0, stride * env_cpus) : NULL;
}

void free_percpu(void __percpu *ptr)
{
	free(ptr);
}

int env_percpu_counter_init(struct percpu_counter *counter, s64 amount)
{
	atomic64_set(&counter->count, amount);
	counter->part = alloc_percpu(atomic64_t);
	return counter->part ? 0 : -ENOMEM;
}

void percpu_counter_destroy(struct percpu_counter *counter)
{
	free_percpu(counter->part);
	counter->part = NULL;
}

void percpu_counter_add_batch(struct percpu_counter *counter, s64 amount, s32 batch)
{
	atomic64_t *part = raw_cpu_ptr(counter->part);
	s64 now = atomic64_add_return(amount, part);

	if (now < batch && now > -batch)
		return;
	atomic64_sub(now, part);
	atomic64_add(now, &counter->count);
}

s64 percpu_counter_sum(struct percpu_counter *counter)
{
	s64 sum = atomic64_read(&counter->count);
	int cpu;

	for_each_possible_cpu(cpu)
		sum += atomic64_read(per_cpu_ptr(counter->part, cpu));
	return sum;
}

void percpu_counter_set(struct percpu_counter *counter, s64 amount)
{
	int cpu;

	for_each_possible_cpu(cpu)
		atomic64_set(per_cpu_ptr(counter->part, cpu), 0);
	atomic64_set(&counter->count, amount);
}

/* Time. */

static u64 (*test_clock)(void);

void env_set_clock(u64 (*real_ns)(void))
{
	__atomic_store_n(&test_clock, real_ns, __ATOMIC_RELEASE);
}

static u64 passed_ns;

void env_pass_time(u64 ns)
{
	__atomic_fetch_add(&passed_ns, ns, __ATOMIC_RELAXED);
}

u64 env_passed_ns(void)
{
	return __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);
}

u64 ktime_get_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec + env_passed_ns();
}

static struct timespec64 real_time(clockid_t id)
{
	u64 (*clock)(void) = __atomic_load_n(&test_clock, __ATOMIC_ACQUIRE);
	struct timespec now;

	if (clock) {
		u64 ns = clock();

		now = (struct timespec){ .tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC };
	} else {
		clock_gettime(id, &now);
	}
	return (struct timespec64){ .tv_sec = now.tv_sec, .tv_nsec = now.tv_nsec };
}

void ktime_get_real_ts64(struct timespec64 *ts)
{
	*ts = real_time(CLOCK_REALTIME);
}

void ktime_get_coarse_real_ts64(struct timespec64 *ts)
{
	*ts = real_time(CLOCK_REALTIME_COARSE);
}

/* Chance. */

#define WEYL_STEP 0x9e3779b97f4a7c15ULL

static bool random_seeded;
static u64 random_state;

void env_set_random_seed(u64 seed)
{
	__atomic_store_n(&random_state, seed, __ATOMIC_SEQ_CST);
	__atomic_store_n(&random_seeded, seed != 0, __ATOMIC_SEQ_CST);
}

/* SplitMix64: a counter, mixed.  Threads take numbers from it without a lock. */
static u64 random_from_seed(void)
{
	u64 x = __atomic_add_fetch(&random_state, WEYL_STEP, __ATOMIC_RELAXED);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

void get_random_bytes(void *buf, size_t bytes)
{
	u8 *at = buf;

	while (bytes) {
		size_t some = min_t(size_t, bytes, sizeof(u64));

		if (READ_ONCE(random_seeded)) {
			u64 x = random_from_seed();

			memcpy(at, &x, some);
		} else {
			ssize_t got = getrandom(at, min_t(size_t, bytes, 256), 0);

			if (got < 0)
				continue;	/* EINTR: nothing else can happen */
			some = got;
		}
		at += some;
		bytes -= some;
	}
}

u64 get_random_u64(void)
{
	u64 x;

	get_random_bytes(&x, sizeof(x));
	return x;
}

#define RANDOM_BATCH 32u

/* Each thread has some in stock.  After fork() both have the same, so what must be unique takes the others. */
u32 get_random_u32(void)
{
	static __thread u32 stock[RANDOM_BATCH], left;

	if (READ_ONCE(random_seeded))
		return random_from_seed();
	if (!left) {
		get_random_bytes(stock, sizeof(stock));
		left = RANDOM_BATCH;
	}
	return stock[--left];
}

/* Messages. */

static void log_to_stderr(int level, const char *message)
{
	fprintf(stderr, "tux3: %s\n", message);
}

static void (*log_fn)(int level, const char *message) = log_to_stderr;

void env_set_log(void (*fn)(int level, const char *message))
{
	__atomic_store_n(&log_fn, fn ? fn : log_to_stderr, __ATOMIC_RELEASE);
}

void env_printk(int level, const char *fmt, ...)
{
	void (*fn)(int level, const char *message) = __atomic_load_n(&log_fn, __ATOMIC_ACQUIRE);
	char message[1024];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vscnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	if (len && message[len - 1] == '\n')
		message[len - 1] = 0;
	fn(level, message);
}

void env_warn(const char *file, int line, const char *condition)
{
	env_printk(ENV_LOG_WARN, "internal inconsistency at %s:%d: %s", file, line, condition);
}

/* Strings. */

int vscnprintf(char *buf, size_t size, const char *fmt, va_list args)
{
	int len = vsnprintf(buf, size, fmt, args);

	if (len < 0 || !size)
		return 0;
	return min_t(size_t, len, size - 1);
}

int scnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = vscnprintf(buf, size, fmt, args);
	va_end(args);
	return len;
}

void *memchr_inv(const void *start, int c, size_t bytes)
{
	const u64 word = 0x0101010101010101ull * (u8)c;
	const u8 *p = start;
	size_t i = 0;

	/* If the first byte is right and each of the rest is as the one before it, all are right. */
	if (bytes > 64 && p[0] == (u8)c && !memcmp(p, p + 1, bytes - 1))
		return NULL;
	while (i + sizeof(word) <= bytes && get_unaligned_le64(p + i) == word)
		i += sizeof(word);
	while (i < bytes && p[i] == (u8)c)
		i++;
	return i < bytes ? (void *)(uintptr_t)(p + i) : NULL;
}

ssize_t strscpy(char *dest, const char *src, size_t size)
{
	size_t len = strnlen(src, size);

	if (!size)
		return -E2BIG;
	if (len == size) {
		memcpy(dest, src, size - 1);
		dest[size - 1] = 0;
		return -E2BIG;
	}
	memcpy(dest, src, len + 1);
	return len;
}
