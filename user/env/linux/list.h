/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * Doubly linked rings (list_head) and hash chains with a one-pointer head (hlist).  No locking here.
 */
#ifndef TUX3_ENV_LIST_H
#define TUX3_ENV_LIST_H

#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/types.h>

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next, **pprev;	/* pprev: whatever points here */
};

struct hlist_head {
	struct hlist_node *first;
};

#define LIST_HEAD_INIT(name)	{ &(name), &(name) }
#undef LIST_HEAD
#define LIST_HEAD(name)		struct list_head name = LIST_HEAD_INIT(name)

static inline void INIT_LIST_HEAD(struct list_head *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list_head *head)
{
	return READ_ONCE(head->next) == head;
}

static inline bool list_is_singular(const struct list_head *head)
{
	return head->next != head && head->next == head->prev;
}

static inline bool list_is_last(const struct list_head *entry, const struct list_head *head)
{
	return entry->next == head;
}

/* The one place that inserts: the ring first..last goes between two neighbours. */
static inline void env_list_join(struct list_head *before, struct list_head *first,
				 struct list_head *last, struct list_head *after)
{
	first->prev = before;
	last->next = after;
	after->prev = last;
	WRITE_ONCE(before->next, first);
}

static inline void list_add(struct list_head *entry, struct list_head *head)
{
	env_list_join(head, entry, entry, head->next);
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	env_list_join(head->prev, entry, entry, head);
}

static inline void env_list_unlink(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	WRITE_ONCE(entry->prev->next, entry->next);
}

/* An entry taken off without _init is poisoned: using it again is a crash, not a quiet mistake. */
static inline void list_del(struct list_head *entry)
{
	env_list_unlink(entry);
	entry->next = (struct list_head *)0x100;
	entry->prev = (struct list_head *)0x122;
}

static inline void list_del_init(struct list_head *entry)
{
	env_list_unlink(entry);
	INIT_LIST_HEAD(entry);
}

static inline void list_move(struct list_head *entry, struct list_head *head)
{
	env_list_unlink(entry);
	list_add(entry, head);
}

static inline void list_move_tail(struct list_head *entry, struct list_head *head)
{
	env_list_unlink(entry);
	list_add_tail(entry, head);
}

static inline void list_splice(const struct list_head *list, struct list_head *head)
{
	if (!list_empty(list))
		env_list_join(head, list->next, list->prev, head->next);
}

static inline void list_splice_tail(struct list_head *list, struct list_head *head)
{
	if (!list_empty(list))
		env_list_join(head->prev, list->next, list->prev, head);
}

static inline void list_splice_init(struct list_head *list, struct list_head *head)
{
	list_splice(list, head);
	INIT_LIST_HEAD(list);
}

static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
	list_splice_tail(list, head);
	INIT_LIST_HEAD(list);
}

#define list_entry(ptr, type, member)		container_of(ptr, type, member)
#define list_first_entry(head, type, member)	list_entry((head)->next, type, member)
#define list_last_entry(head, type, member)	list_entry((head)->prev, type, member)
#define list_next_entry(pos, member)		list_entry((pos)->member.next, __typeof__(*(pos)), member)
#define list_prev_entry(pos, member)		list_entry((pos)->member.prev, __typeof__(*(pos)), member)
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : list_first_entry(head, type, member))
#define list_entry_is_head(pos, head, member) \
	((uintptr_t)(pos) + offsetof(__typeof__(*(pos)), member) == (uintptr_t)(head))

#define list_for_each(pos, head) \
	for (pos = (head)->next; pos != (head); pos = pos->next)
#define list_for_each_safe(pos, n, head) \
	for (pos = (head)->next, n = pos->next; pos != (head); pos = n, n = pos->next)
#define list_for_each_entry(pos, head, member)				\
	for (pos = list_first_entry(head, __typeof__(*pos), member);	\
	     !list_entry_is_head(pos, head, member);			\
	     pos = list_next_entry(pos, member))
#define list_for_each_entry_reverse(pos, head, member)			\
	for (pos = list_last_entry(head, __typeof__(*pos), member);	\
	     !list_entry_is_head(pos, head, member);			\
	     pos = list_prev_entry(pos, member))
#define list_for_each_entry_safe(pos, n, head, member)			\
	for (pos = list_first_entry(head, __typeof__(*pos), member);	\
	     !list_entry_is_head(pos, head, member) &&			\
	     (n = list_next_entry(pos, member), 1);			\
	     pos = n)

#define HLIST_HEAD_INIT		{ .first = NULL }
#define HLIST_HEAD(name)	struct hlist_head name = HLIST_HEAD_INIT
#define INIT_HLIST_HEAD(head)	((head)->first = NULL)

static inline void INIT_HLIST_NODE(struct hlist_node *node)
{
	node->next = NULL;
	node->pprev = NULL;
}

static inline bool hlist_unhashed(const struct hlist_node *node)
{
	return !node->pprev;
}

static inline bool hlist_empty(const struct hlist_head *head)
{
	return !READ_ONCE(head->first);
}

static inline void hlist_add_head(struct hlist_node *node, struct hlist_head *head)
{
	node->next = head->first;
	node->pprev = &head->first;
	if (head->first)
		head->first->pprev = &node->next;
	WRITE_ONCE(head->first, node);
}

static inline void env_hlist_unlink(struct hlist_node *node)
{
	WRITE_ONCE(*node->pprev, node->next);
	if (node->next)
		node->next->pprev = node->pprev;
}

static inline void hlist_del(struct hlist_node *node)
{
	env_hlist_unlink(node);
	node->next = (struct hlist_node *)0x100;
	node->pprev = (struct hlist_node **)0x122;
}

static inline void hlist_del_init(struct hlist_node *node)
{
	if (hlist_unhashed(node))
		return;
	env_hlist_unlink(node);
	INIT_HLIST_NODE(node);
}

#define hlist_entry(ptr, type, member)	container_of(ptr, type, member)
#define hlist_entry_safe(ptr, type, member) __extension__ ({		\
	struct hlist_node *env_node = (ptr);				\
	env_node ? hlist_entry(env_node, type, member) : NULL; })
#define hlist_for_each_entry(pos, head, member)				\
	for (pos = hlist_entry_safe((head)->first, __typeof__(*pos), member); \
	     pos;							\
	     pos = hlist_entry_safe(pos->member.next, __typeof__(*pos), member))
/* n is a struct hlist_node pointer, as in the kernel. */
#define hlist_for_each_entry_safe(pos, n, head, member)			\
	for (pos = hlist_entry_safe((head)->first, __typeof__(*pos), member); \
	     pos && (n = pos->member.next, 1);				\
	     pos = hlist_entry_safe(n, __typeof__(*pos), member))

#endif
