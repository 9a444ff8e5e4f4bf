/* SPDX-License-Identifier: GPL-2.0-or-later */
/* list_sort() and sort() of core/env.h.  The caller's lock protects what is sorted. */
#include <linux/list_sort.h>
#include <linux/sort.h>
#include <linux/string.h>

/* Both lists end with NULL and use only next; those of a come before equal ones of b. */
static struct list_head *merge(void *priv, list_cmp_func_t cmp, struct list_head *a,
			       struct list_head *b)
{
	struct list_head *merged;
	struct list_head **tail = &merged;

	while (a && b) {
		struct list_head **less = cmp(priv, a, b) > 0 ? &b : &a;

		*tail = *less;
		tail = &(*less)->next;
		*less = (*less)->next;
	}
	*tail = a ? a : b;
	return merged;
}

/* run[i] holds nothing or 2^i sorted entries, older than those of every lower run. */
void list_sort(void *priv, struct list_head *head, list_cmp_func_t cmp)
{
	struct list_head *run[64] = { NULL };
	struct list_head *entry, *next, *sorted = NULL;
	unsigned int i, top = 0;

	head->prev->next = NULL;
	for (entry = head->next == head ? NULL : head->next; entry; entry = next) {
		next = entry->next;
		entry->next = NULL;
		for (i = 0; run[i]; i++) {
			entry = merge(priv, cmp, run[i], entry);
			run[i] = NULL;
		}
		run[i] = entry;
		top = i > top ? i : top;
	}
	for (i = 0; i <= top; i++)
		if (run[i])
			sorted = merge(priv, cmp, run[i], sorted);

	INIT_LIST_HEAD(head);
	for (; sorted; sorted = next) {
		next = sorted->next;
		list_add_tail(sorted, head);
	}
}

static void swap_bytes(void *a, void *b, int size)
{
	u8 *x = a, *y = b;

	while (size--) {
		u8 byte = *x;

		*x++ = *y;
		*y++ = byte;
	}
}

static void swap_words(void *a, void *b, int size)
{
	for (; size > 0; size -= sizeof(u64), a += sizeof(u64), b += sizeof(u64)) {
		u64 x, y;

		memcpy(&x, a, sizeof(x));
		memcpy(&y, b, sizeof(y));
		memcpy(a, &y, sizeof(y));
		memcpy(b, &x, sizeof(x));
	}
}

/* A heap whose top is the greatest; the top goes to the end, again and again. */
void sort(void *base, size_t num, size_t size, cmp_func_t cmp, swap_func_t swap_items)
{
	u8 *at = base;
	size_t heapify = num / 2;

	if (!swap_items)
		swap_items = size % sizeof(u64) ? swap_bytes : swap_words;
	while (num > 1) {
		size_t i;

		if (heapify) {
			i = --heapify;
		} else {
			num--;
			swap_items(at, at + num * size, size);
			i = 0;
		}
		while (2 * i + 1 < num) {
			size_t big = 2 * i + 1;

			if (big + 1 < num && cmp(at + big * size, at + (big + 1) * size) < 0)
				big++;
			if (cmp(at + i * size, at + big * size) >= 0)
				break;
			swap_items(at + i * size, at + big * size, size);
			i = big;
		}
	}
}
