/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deleting inodes and cutting the ends off files, long ones in slices, over several commits.  How: delete.c.
 */
#ifndef TUX3_DELETE_H
#define TUX3_DELETE_H

#include "core/env.h"

struct volume;
struct tree_key;
struct tux3_inode;

/* All of these with commit_mutex held, but where a hint will do, and delete_exit(). */
/* Within a tree edit, begun at its attributes. */
int delete_inode(struct tux3_inode *inode, bool is_long);
/* It goes in slices, or part of it cannot be read: 1, else 0, or -errno. */
int delete_inode_is_long(struct tux3_inode *inode);
/* Slices of the deletes under way, into the current commit, as far as there is space; adds what it charged. */
int delete_continue(struct volume *vol, s64 *charged);
void delete_done(struct volume *vol, int err);	/* the commit is durable, or was given up */
bool delete_is_long(struct volume *vol, u64 blocks);	/* so many blocks go in slices */
/* The ORPHAN item of an inode, kind 0: none.  Between tree edits. */
int delete_mark_orphan(struct volume *vol, u64 ino, u32 kind, u64 block);
/*
 * Outside a delta, without commit_mutex: can all be read that these blocks of a file take when they go?  A commit that finds out
 * can only tell fsync.  What goes in slices finds out by itself.  0, -EIO, -ENOMEM.
 */
int delete_look(struct tux3_inode *inode, u64 block, u64 count);
/* The same of blocks on the disk alone, whose free maps are changed; and of items: leaves, and free maps of what goes with them. */
int delete_look_blocks(struct volume *vol, u64 addr, u64 count);
int delete_look_items(struct volume *vol, const struct tree_key *from, const struct tree_key *to);
/* The free maps of what goes with these items, which have been looked at, stay in memory until this delta is committed; -EAGAIN. */
int delete_need_maps(struct volume *vol, const struct tree_key *from, const struct tree_key *to, u64 delta);
bool delete_cut_failed(struct volume *vol, u64 ino);	/* that of this inode was put off: any context */
int delete_cut(struct tux3_inode *inode, u64 block);	/* all extents from block on, in slices */
bool delete_under_way(struct volume *vol);	/* or as a hint */
bool delete_cuts_left(struct volume *vol);	/* or as a hint */
bool delete_is_starved(struct volume *vol);	/* they wait for a unify; commit_mutex */
int delete_orphans(struct volume *vol);		/* at mount: queue what orphan items say */
/* The volume becomes writable again: queue what delta_forget_later() was told of. */
int delete_begin_later(struct volume *vol);
void delete_exit(struct volume *vol);

#endif
