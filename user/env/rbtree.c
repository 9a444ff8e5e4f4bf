/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Red-black trees, as in the textbook: a red node has no red child, and every way from the root to a
 * missing child meets the same number of black nodes.  Missing children count as black.
 * The caller's lock protects the tree.
 */
#include <linux/rbtree.h>

static bool is_red(const struct rb_node *node)
{
	return node && node->parent_red & 1;
}

static void set_red(struct rb_node *node, bool red)
{
	node->parent_red = (node->parent_red & ~(uintptr_t)1) | red;
}

static void set_parent(struct rb_node *node, struct rb_node *parent)
{
	node->parent_red = (uintptr_t)parent | (node->parent_red & 1);
}

/* Whatever points to old, its parent or the root, points to new. */
static void replace_child(struct rb_root *root, struct rb_node *parent, struct rb_node *old,
			  struct rb_node *new)
{
	if (!parent)
		WRITE_ONCE(root->rb_node, new);
	else if (parent->rb_left == old)
		WRITE_ONCE(parent->rb_left, new);
	else
		WRITE_ONCE(parent->rb_right, new);
}

static struct rb_node **child(struct rb_node *node, bool right)
{
	return right ? &node->rb_right : &node->rb_left;
}

/* Down goes node, to the side that `right` says; its child of the other side comes up. */
static void rotate(struct rb_root *root, struct rb_node *node, bool right)
{
	struct rb_node *up = *child(node, !right);
	struct rb_node *moved = *child(up, right);
	struct rb_node *parent = rb_parent(node);

	WRITE_ONCE(*child(node, !right), moved);
	if (moved)
		set_parent(moved, node);
	WRITE_ONCE(*child(up, right), node);
	set_parent(node, up);
	set_parent(up, parent);
	replace_child(root, parent, node, up);
}

/* The node is red; so may its parent be. */
void rb_insert_color(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *parent;

	while (is_red(parent = rb_parent(node))) {
		struct rb_node *grand = rb_parent(parent);	/* a red node is not the root */
		bool side = parent == grand->rb_right;
		struct rb_node *uncle = *child(grand, !side);

		if (is_red(uncle)) {
			set_red(parent, false);
			set_red(uncle, false);
			set_red(grand, true);
			node = grand;
			continue;
		}
		if (node == *child(parent, !side)) {
			rotate(root, parent, side);
			swap(node, parent);
		}
		set_red(parent, false);
		set_red(grand, true);
		rotate(root, grand, !side);
	}
	set_red(root->rb_node, false);
}

/* The ways through node, which may be NULL, have one black node too few. */
static void erase_fixup(struct rb_node *node, struct rb_node *parent, struct rb_root *root)
{
	while (parent && !is_red(node)) {
		bool side = node == parent->rb_right;
		struct rb_node *sibling = *child(parent, !side);

		if (is_red(sibling)) {
			set_red(sibling, false);
			set_red(parent, true);
			rotate(root, parent, side);
			sibling = *child(parent, !side);
		}
		if (!is_red(sibling->rb_left) && !is_red(sibling->rb_right)) {
			set_red(sibling, true);
			node = parent;
			parent = rb_parent(node);
			continue;
		}
		if (!is_red(*child(sibling, !side))) {
			set_red(*child(sibling, side), false);
			set_red(sibling, true);
			rotate(root, sibling, !side);
			sibling = *child(parent, !side);
		}
		set_red(sibling, is_red(parent));
		set_red(parent, false);
		set_red(*child(sibling, !side), false);
		rotate(root, parent, side);
		return;
	}
	if (node)
		set_red(node, false);
}

void rb_erase(struct rb_node *node, struct rb_root *root)
{
	struct rb_node *parent = rb_parent(node);
	struct rb_node *heir, *moved;
	bool lost_black;

	if (!node->rb_left || !node->rb_right) {
		moved = node->rb_left ? node->rb_left : node->rb_right;
		if (moved)
			set_parent(moved, parent);
		replace_child(root, parent, node, moved);
		if (!is_red(node))
			erase_fixup(moved, parent, root);
		return;
	}

	/* Two children: the next node, which has no left child, takes this one's place and colour. */
	for (heir = node->rb_right; heir->rb_left; heir = heir->rb_left)
		;
	lost_black = !is_red(heir);
	moved = heir->rb_right;
	parent = rb_parent(heir);
	if (parent == node) {
		parent = heir;
	} else {
		parent->rb_left = moved;
		if (moved)
			set_parent(moved, parent);
		heir->rb_right = node->rb_right;
		set_parent(heir->rb_right, heir);
	}
	heir->rb_left = node->rb_left;
	set_parent(heir->rb_left, heir);
	heir->parent_red = node->parent_red;
	replace_child(root, rb_parent(node), node, heir);
	if (lost_black)
		erase_fixup(moved, parent, root);
}

static struct rb_node *outermost(struct rb_node *node, bool right)
{
	while (node && *child(node, right))
		node = *child(node, right);
	return node;
}

static struct rb_node *neighbour(const struct rb_node *node, bool right)
{
	struct rb_node *at = (struct rb_node *)(uintptr_t)node;
	struct rb_node *parent;

	if (RB_EMPTY_NODE(node))
		return NULL;
	if (*child(at, right))
		return outermost(*child(at, right), !right);
	while ((parent = rb_parent(at)) && at == *child(parent, right))
		at = parent;
	return parent;
}

struct rb_node *rb_first(const struct rb_root *root)
{
	return outermost(root->rb_node, false);
}

struct rb_node *rb_last(const struct rb_root *root)
{
	return outermost(root->rb_node, true);
}

struct rb_node *rb_next(const struct rb_node *node)
{
	return neighbour(node, true);
}

struct rb_node *rb_prev(const struct rb_node *node)
{
	return neighbour(node, false);
}

/* The leaf that a visit of children before parents begins with. */
static struct rb_node *first_leaf(struct rb_node *node)
{
	while (node && (node->rb_left || node->rb_right))
		node = node->rb_left ? node->rb_left : node->rb_right;
	return node;
}

struct rb_node *rb_first_postorder(const struct rb_root *root)
{
	return first_leaf(root->rb_node);
}

struct rb_node *rb_next_postorder(const struct rb_node *node)
{
	struct rb_node *parent = rb_parent(node);

	if (parent && node == parent->rb_left && parent->rb_right)
		return first_leaf(parent->rb_right);
	return parent;
}
