/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * A lock-free stack: any number of llist_add() and llist_del_all() at once.
 */
#ifndef TUX3_ENV_LLIST_H
#define TUX3_ENV_LLIST_H

#include <linux/kernel.h>
#include <linux/types.h>

struct llist_node {
	struct llist_node *next;
};

struct llist_head {
	struct llist_node *first;
};

#define LLIST_HEAD_INIT(name)	{ NULL }
#define LLIST_HEAD(name)	struct llist_head name = LLIST_HEAD_INIT(name)

static inline void init_llist_head(struct llist_head *head)
{
	head->first = NULL;
}

static inline bool llist_empty(const struct llist_head *head)
{
	return !__atomic_load_n(&head->first, __ATOMIC_RELAXED);
}

/* True if the list was empty before. */
static inline bool llist_add(struct llist_node *node, struct llist_head *head)
{
	struct llist_node *first = __atomic_load_n(&head->first, __ATOMIC_RELAXED);

	do {
		node->next = first;
	} while (!__atomic_compare_exchange_n(&head->first, &first, node, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	return !first;
}

static inline struct llist_node *llist_del_all(struct llist_head *head)
{
	return __atomic_exchange_n(&head->first, NULL, __ATOMIC_SEQ_CST);
}

static inline struct llist_node *llist_reverse_order(struct llist_node *node)
{
	struct llist_node *done = NULL;

	while (node) {
		struct llist_node *next = node->next;

		node->next = done;
		done = node;
		node = next;
	}
	return done;
}

#define llist_entry(ptr, type, member)	container_of(ptr, type, member)
/* The container of NULL is told by its member being at NULL. */
#define env_llist_valid(pos, member) \
	((uintptr_t)(pos) + offsetof(__typeof__(*(pos)), member) != 0)
#define llist_for_each_entry(pos, node, member)				\
	for (pos = llist_entry((node), __typeof__(*pos), member);	\
	     env_llist_valid(pos, member);				\
	     pos = llist_entry(pos->member.next, __typeof__(*pos), member))
#define llist_for_each_entry_safe(pos, n, node, member)			\
	for (pos = llist_entry((node), __typeof__(*pos), member);	\
	     env_llist_valid(pos, member) &&				\
	     (n = llist_entry(pos->member.next, __typeof__(*n), member), 1); \
	     pos = n)

#endif
