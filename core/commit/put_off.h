/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an fsync of others leaves to the next delta: stores through mappings.
 *
 * A program that keeps shared memory in a file (SQLite's wal-index, beside its log) stores to it all the time, and never syncs it.
 * Each fsync of another file, which commits the front delta, would write that memory too, and write-protect it, so that the next
 * stores fault again.  So the commit for an fsync puts such an inode off: its state moves from the slot of the delta that has just
 * ended to that of the next one, as if the stores were made then.  No filesystem promises an order between stores and system calls
 * without msync, and which delta has a store was decided by the moment of its commit before, too (linux/mmap.c).
 *
 *	N is closed:	slot N	 stored, dirty		slot N + 1	empty, nobody inside
 *	put off:	slot N	 empty			slot N + 1	stored, dirty; its blocks, its charge, its age
 *
 * An inode is put off only if
 *
 *  1. all that has changed of it in the delta are stores through mappings, to a file that is no smaller than its blocks, and the
 *     times that go with them (inode_slot.stored).  A write, a truncate, a new name, whatever else: its delta commits all of it;
 *  2. nobody waits for it.  An fsync of it takes the mark away, in both slots, before it looks which delta it needs, and
 *     an intent when it is captured.  Who waits for everything (sync, syncfs, freeze) is counted (delta.wholes) before
 *     he looks which delta that is; a commit for anything but an fsync puts nothing off;
 *  3. the front delta has not reached its age: what is put off takes its age along, so that it is committed as soon as any change;
 *  4. the delta is small and so is the inode: this runs while everybody waits at the gate;
 *  5. space can be charged anew for what it will take in the next delta.  What it was charged in this one comes back;
 *  6. the mount does not say fsync=full;
 *  7. the host knows of all stores to it: what a commit would find in its page tables, it finds before (host.h).
 */
#ifndef TUX3_PUT_OFF_H
#define TUX3_PUT_OFF_H

#include "core/env.h"

struct volume;

/* Within the transition, when delta has ended and nobody is inside the next one.  Was something put off?  commit_mutex held. */
bool put_off_stored(struct volume *vol, u64 delta);

#endif
