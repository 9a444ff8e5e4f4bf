/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * A balanced binary search tree whose user does the searching: walk down from root->rb_node by
 * rb_left and rb_right, rb_link_node() at the place found, then rb_insert_color().  The code is in
 * user/env/rbtree.c.  No locking here.
 */
#ifndef TUX3_ENV_RBTREE_H
#define TUX3_ENV_RBTREE_H

#include <linux/kernel.h>
#include <linux/types.h>

struct rb_node {
	uintptr_t parent_red;	/* the parent; bit 0: this node is red; itself: not in a tree */
	struct rb_node *rb_left, *rb_right;
} __aligned(sizeof(long));

struct rb_root {
	struct rb_node *rb_node;
};

#define RB_ROOT			(struct rb_root){ NULL }
#define RB_EMPTY_ROOT(root)	(READ_ONCE((root)->rb_node) == NULL)
#define RB_EMPTY_NODE(node)	((node)->parent_red == (uintptr_t)(node))
#define RB_CLEAR_NODE(node)	((node)->parent_red = (uintptr_t)(node))
#define rb_parent(node)		((struct rb_node *)((node)->parent_red & ~(uintptr_t)1))
#define rb_entry(ptr, type, member) container_of(ptr, type, member)
#define rb_entry_safe(ptr, type, member) __extension__ ({		\
	struct rb_node *env_rb = (ptr);					\
	env_rb ? rb_entry(env_rb, type, member) : NULL; })

static inline void rb_link_node(struct rb_node *node, struct rb_node *parent, struct rb_node **link)
{
	node->parent_red = (uintptr_t)parent | 1;
	node->rb_left = node->rb_right = NULL;
	*link = node;
}

void rb_insert_color(struct rb_node *node, struct rb_root *root);
void rb_erase(struct rb_node *node, struct rb_root *root);
struct rb_node *rb_first(const struct rb_root *root);
struct rb_node *rb_last(const struct rb_root *root);
struct rb_node *rb_next(const struct rb_node *node);
struct rb_node *rb_prev(const struct rb_node *node);
/* Children before their parents, so that the visitor may free each node. */
struct rb_node *rb_first_postorder(const struct rb_root *root);
struct rb_node *rb_next_postorder(const struct rb_node *node);

#define rbtree_postorder_for_each_entry_safe(pos, n, root, member)	\
	for (pos = rb_entry_safe(rb_first_postorder(root), __typeof__(*pos), member); \
	     pos && (n = rb_entry_safe(rb_next_postorder(&pos->member), __typeof__(*pos), member), 1); \
	     pos = n)

#endif
