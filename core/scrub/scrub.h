/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Scrub: read what a volume has on its device, and verify it, while the volume is in use.
 *
 * There is no thread: who wants to scrub asks for one portion after the other, and keeps a cursor in between.  A portion reads from
 * the device, past all caches:
 *
 *	anchors		both copies of the one that counts
 *	log		the blocks of durable commits since the anchor
 *	free maps	the slots of each group that are to be whole
 *	tree		in the order of keys each node that has its block, and behind each leaf the data that it leads to: extents
 *			with checksums, values of xattrs; of what has no checksum, whether it can be read
 *
 * The tree is that in memory, of the last commit.  Nodes that are dirty, or on their way to the device, are taken from
 * memory: they have no block yet.
 *
 * Nobody is held up.  tree.sem is held shared for one way from the root to a leaf in memory, never across I/O, and
 * commit_mutex for a look.  So what was read may have been freed, moved or written meanwhile, and a mismatch means nothing at
 * first.  Before it is told, where the block is is looked up again with no commit under way, it is read again, and looked up
 * once more: only what was in its place from the first to the last look, and durable, is a problem.
 *
 * What is not seen: intents of fsyncs, which the next commit supersedes, and nodes that only the anchor's tree still has.
 * Names against parent pointers, link counts, free maps against the tree: that needs all of the volume at one moment, see hold.h.
 */
#ifndef TUX3_SCRUB_H
#define TUX3_SCRUB_H

#include "core/env.h"
#include "core/ioctl.h"

struct volume;

/*
 * One portion.  0: see scrub->flags, problem_count; a portion also ends when there is no room for more problems, or when the
 * caller is killed.  -EINVAL: not a cursor, or something unknown is asked for; -ESTALE: the cursor is that of another volume;
 * -ENOMEM; -EINTR: killed; -EIO: the volume has stopped, and what is in memory and on the disk need not fit together any more.
 * Not inside a delta, without locks.
 */
int volume_scrub(struct volume *vol, struct tux3_ioc_scrub *scrub);

#endif
