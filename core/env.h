/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The whole list of what core/ may use of its surroundings.
 *
 * These are the Linux kernel's own headers.  In the kernel they are the real ones; in user space
 * user/env/ stands first on the include path and implements the names below on pthreads, with the
 * kernel's meaning, so that races are real and ThreadSanitizer sees them.  core/ includes nothing
 * else but its own headers, and uses no name that is not listed here.  No #ifdef __KERNEL__ in core/.
 * 64-bit machines only.
 */
#ifndef TUX3_ENV_H
#define TUX3_ENV_H

#include <linux/types.h>	/* u8..u64 s8..s64 __le16/32/64 bool size_t loff_t, gfp_t */
#include <linux/kernel.h>	/* container_of min max min_t max_t clamp swap ARRAY_SIZE DIV_ROUND_UP round_up
				   round_down roundup BIT_ULL snprintf scnprintf
				   vscnprintf va_list, S8..U64_MAX */
#include <linux/build_bug.h>	/* static_assert BUILD_BUG_ON */
#include <linux/compiler.h>	/* likely unlikely READ_ONCE WRITE_ONCE data_race, __packed __printf __maybe_unused
				   __must_check noinline fallthrough */
#include <linux/bug.h>		/* WARN_ON_ONCE (prints once, returns the condition) */
#include <linux/err.h>		/* ERR_PTR PTR_ERR IS_ERR IS_ERR_OR_NULL, and errno names */
#include <linux/errno.h>
#include <linux/string.h>	/* memcpy memmove memset memcmp memchr memchr_inv strlen strscpy strcmp */
#include <linux/list.h>		/* list_head and hlist families: INIT_, add, add_tail, del, del_init, empty, splice_init,
				   splice_tail_init, move, move_tail, first_entry, entry, for_each_entry(_safe);
				   list_last_entry list_first_entry_or_null list_for_each_entry_reverse */
#include <linux/llist.h>	/* llist_head llist_node init_llist_head llist_add llist_del_all llist_empty
				   llist_for_each_entry_safe llist_reverse_order */
#include <linux/list_sort.h>	/* list_sort */
#include <linux/rbtree.h>	/* rb_root rb_node RB_ROOT rb_entry rb_link_node rb_insert_color rb_erase rb_first
				   rb_last rb_next rb_prev RB_CLEAR_NODE RB_EMPTY_NODE RB_EMPTY_ROOT
				   rbtree_postorder_for_each_entry_safe */
#include <linux/sort.h>		/* sort */
#include <linux/spinlock.h>	/* spinlock_t spin_lock_init spin_lock spin_unlock spin_trylock,
				   spin_lock_irqsave spin_unlock_irqrestore */
#include <linux/mutex.h>	/* mutex mutex_init lock lock_killable unlock trylock mutex_is_locked */
#include <linux/rwsem.h>	/* rw_semaphore init_rwsem down_read up_read down_write up_write down_read_trylock
				   down_write_trylock */
#include <linux/lockdep.h>	/* lockdep_assert_held lockdep_assert_not_held lockdep_assert_held_write, struct lockdep_map
				   lock_class_key lockdep_init_map rwsem_acquire rwsem_acquire_read rwsem_release, _THIS_IP_,
				   IS_ENABLED(CONFIG_PROVE_LOCKING) */
#include <linux/atomic.h>	/* atomic_t atomic64_t: read set add sub inc dec, add_return sub_return inc_return
				   dec_and_test inc_not_zero cmpxchg fetch_add read_acquire; smp_mb smp_rmb smp_wmb,
				   smp_load_acquire smp_store_release, cmpxchg xchg */
#include <linux/percpu.h>	/* __percpu alloc_percpu free_percpu per_cpu_ptr raw_cpu_ptr for_each_possible_cpu
				   num_possible_cpus */
#include <linux/percpu_counter.h>	/* percpu_counter: init destroy add_batch read sum set */
#include <linux/wait.h>		/* wait_queue_head_t init_waitqueue_head wait_event wait_event_timeout wait_event_killable wake_up
				   wake_up_all, wait_event_freezable(_timeout) */
#include <linux/completion.h>	/* completion init_completion complete complete_all wait_for_completion(_io)(_timeout)(_killable) */
#include <linux/kthread.h>	/* task_struct kthread_run kthread_stop kthread_should_stop */
#include <linux/workqueue.h>	/* work_struct workqueue_struct INIT_WORK alloc_workqueue WQ_UNBOUND WQ_HIGHPRI WQ_MEM_RECLAIM
				   queue_work destroy_workqueue */
#include <linux/freezer.h>	/* set_freezable try_to_freeze */
#include <linux/sched.h>	/* cond_resched, memalloc_nofs_save/restore come with linux/sched/mm.h */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>	/* fatal_signal_pending(current) */
#include <linux/jiffies.h>	/* jiffies msecs_to_jiffies HZ */
#include <linux/ktime.h>	/* ktime_get_ns */
#include <linux/timekeeping.h>	/* ktime_get_real_ts64, ktime_get_coarse_real_ts64, struct timespec64 */
#include <linux/slab.h>		/* kmalloc kzalloc kcalloc kfree kmemdup kvmalloc kvzalloc kvfree, GFP_KERNEL GFP_NOFS
				   __GFP_NOWARN __GFP_NOFAIL; kmem_cache_create kmem_cache_alloc kmem_cache_free
				   kmem_cache_destroy */
#include <linux/crc32c.h>	/* crc32c */
#include <linux/siphash.h>	/* siphash siphash_key_t */
#include <linux/bitmap.h>	/* set_bit clear_bit test_bit __set_bit __clear_bit __test_and_set_bit bitmap_set
				   bitmap_clear bitmap_weight bitmap_zero find_next_bit find_next_zero_bit BITS_PER_LONG
				   (set_bit, clear_bit, test_bit atomic; the __ forms not) */
#include <linux/hash.h>		/* hash_64 */
#include <linux/prefetch.h>	/* prefetch: of a cache line */
#include <linux/log2.h>		/* ilog2 is_power_of_2 roundup_pow_of_two rounddown_pow_of_two */
#include <asm/byteorder.h>	/* le16/32/64_to_cpu cpu_to_le16/32/64 le32_add_cpu */
#include <linux/unaligned.h>	/* get_unaligned_le16/32/64 put_unaligned_le16/32/64 */
#include <linux/random.h>	/* get_random_bytes get_random_u32 get_random_u64 */
#include <linux/printk.h>	/* pr_err pr_warn pr_info, _ratelimited, printk formats restricted to what printf(3) knows too */
#include <linux/stat.h>		/* S_IFMT S_ISDIR ... */
#include <linux/uio.h>		/* struct kvec */
#include <linux/blkdev.h>	/* struct blk_plug blk_start_plug blk_finish_plug */
#include "trace/tux3.h"	/* trace_tux3_enter transition commit unify_begin unify_end balloc enospc: linux/trace/ */

/*
 * For the back end: a commit that cannot get a little memory would end the volume's life, so it waits for it.  At most
 * two pages from kmalloc; kvmalloc takes any size.  In user space it waits for seconds, then it may fail as any other.
 */
#define GFP_COMMIT (GFP_NOFS | __GFP_NOFAIL)

#endif
