/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A delta from frozen to durable: commit.c is its course, data_commit.c what becomes of file data.
 */
#ifndef TUX3_COMMIT_H
#define TUX3_COMMIT_H

#include "core/env.h"

struct volume;
struct tux3_inode;
struct tux3_attr;
struct io_wait;

/* Commit the delta that is now the front one; commit_mutex held. */
int commit_delta(struct volume *vol);
/* At the end of a volume that is abandoned: release the inodes dirty in this slot. */
void commit_give_up(struct volume *vol, unsigned int slot);
/*
 * data_commit.c: place, submit and log what is dirty in delta.  attr: the copy that will be
 * logged; the flags that say how the file is stored are changed in it.
 */
int data_commit(struct tux3_inode *inode, u64 delta, struct tux3_attr *attr, struct io_wait *wait);

#endif
