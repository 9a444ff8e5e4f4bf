/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listing directories.
 *
 * Plain: names go straight into the reply.  With attributes ("plus"): the names are gathered first and
 * their nodes looked up afterwards, because a node must not be taken inside tux3_readdir.
 *
 * Positions.  What the kernel is told in a listing it keeps, for whoever lists the directory later.  Whether that is old it asks
 * only when somebody begins, not when he goes on (Linux 6.12 and 6.18; it has kept them since 4.20).  So: A begins.  A name is
 * removed.  B begins, and is told what is there now.  A is told that this was all: what he was told before counts as the listing.
 * B goes on in that behind his position, and is told the name that was removed before he began.  If his position is not in that
 * listing, he goes on here.  So positions of before a change and of after it differ: the count of the directory's changes is added
 * to the cookie, which means the same up to the cookie of the next name.
 *
 * Behind the last name nothing can follow, and the position is the same for all.  So whoever comes there completes what others have
 * begun and left; then the kernel finds it to be old, and makes it anew.  (What was left in the middle, of more names than one
 * reply holds, and before a change, nobody completes: that directory is listed here until the kernel forgets it.)
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/fuse.h>
#include <string.h>

#include "tux3_fuse.h"

#define POSITION_END	((uint64_t)INT64_MAX - 1)	/* behind all cookies */
#define CHANGES_MASK	0xffffffu	/* among a million names two are closer, with hashes of 63 bits */

struct listing {
	fuse_req_t req;
	struct tux3_node *dir;
	uint64_t changes;		/* of dir, before it was looked at */
	char *reply;
	size_t used, size;
	struct fuse_dirent *last;	/* in the reply; its position is its cookie as yet.  NULL: there is none like that */
};

static void begin_listing(struct listing *list, fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct tux3_stat stat;

	*list = (struct listing) {
		.req = req, .dir = node_of(ino), .reply = worker_reply_buffer(), .size = size < REQUEST_MAX ? size : REQUEST_MAX,
	};
	if (!tux3_stat_node(list->dir, &stat))
		list->changes = stat.change & CHANGES_MASK;
}

/*
 * The last entry is followed by one with this cookie, or POSITION_END.  That one begins one before its own cookie, or at that if
 * others share its hash.
 */
static void settle_position(struct listing *list, uint64_t following)
{
	struct fuse_dirent *last = list->last;
	uint64_t most;

	list->last = NULL;
	if (last && following == POSITION_END) {
		last->off = POSITION_END;
	} else if (last && following > last->off) {
		most = following - 1 - last->off;
		last->off += list->changes < most ? list->changes : most;
	}
}

static int add_plain(void *ctx, const struct tux3_dirent *dirent)
{
	struct listing *list = ctx;
	const struct stat stat = { .st_ino = dirent->ino, .st_mode = DTTOIF(dirent->type) };
	char *to = list->reply + list->used;
	size_t need;

	settle_position(list, dirent->next);
	need = fuse_add_direntry(list->req, to, list->size - list->used, dirent->name, &stat, dirent->next);
	if (need > list->size - list->used)
		return 1;
	list->last = (struct fuse_dirent *)to;
	list->used += need;
	return 0;
}

static void reply_listing(struct listing *list, int err)
{
	if (!err)
		settle_position(list, POSITION_END);
	/* What was found before an error is told first; the error comes again with the next call. */
	if (err < 0 && !list->used)
		fuse_reply_err(list->req, -err);
	else
		fuse_reply_buf(list->req, list->reply, list->used);
}

void serve_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct listing list;
	uint64_t cookie = off;

	(void)fi;
	begin_listing(&list, req, ino, size);
	reply_listing(&list, tux3_readdir(list.dir, &cookie, add_plain, &list));
}

/* Names on their way from tux3_readdir to their nodes. */
#define GATHER_MAX 256
struct gathered {
	struct {
		uint64_t ino, next;
		unsigned int name;	/* offset in names */
		unsigned char type;
	} entries[GATHER_MAX];
	unsigned int count;
	uint64_t following;	/* cookie of the first that has no room */
	size_t names_used, room;	/* room: what is left in the reply, at most */
	char names[1 << 14];
};

static int gather(void *ctx, const struct tux3_dirent *dirent)
{
	struct gathered *all = ctx;
	size_t len = strlen(dirent->name) + 1;
	size_t need = fuse_add_direntry_plus(NULL, NULL, 0, dirent->name, NULL, 0);

	all->following = dirent->next;
	if (all->count == GATHER_MAX || len > sizeof(all->names) - all->names_used || need > all->room)
		return 1;
	all->entries[all->count].ino = dirent->ino;
	all->entries[all->count].next = dirent->next;
	all->entries[all->count].name = all->names_used;
	all->entries[all->count].type = dirent->type;
	memcpy(all->names + all->names_used, dirent->name, len);
	all->names_used += len;
	all->room -= need;
	all->count++;
	return 0;
}

/* One entry with the attributes of its node; without a node if that cannot be had: the kernel will ask for it. */
static void add_plus(struct listing *list, const char *name, uint64_t ino, unsigned char type, uint64_t next)
{
	struct fuse_direntplus *to = (struct fuse_direntplus *)(list->reply + list->used);
	struct fuse_entry_param entry = { 0 };
	bool dots = name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
	struct tux3_node *node;

	if (!dots && !tux3_lookup(list->dir, NULL, name, &node) && fill_entry(&entry, node)) {
		entry.ino = 0;
		tux3_node_put(node, 1);
	}
	if (!entry.ino) {
		entry.attr.st_ino = ino;
		entry.attr.st_mode = DTTOIF(type);
	}
	settle_position(list, next);
	list->used += fuse_add_direntry_plus(list->req, (char *)to, list->size - list->used, name, &entry, next);
	list->last = &to->dirent;
}

void serve_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	uint64_t cookie = off;
	struct gathered all;
	struct listing list;
	int err;

	(void)fi;
	begin_listing(&list, req, ino, size);
	do {
		all.count = 0;
		all.names_used = 0;
		all.room = list.size - list.used;
		err = tux3_readdir(list.dir, &cookie, gather, &all);
		for (unsigned int i = 0; i < all.count; i++) {
			add_plus(&list, all.names + all.entries[i].name, all.entries[i].ino, all.entries[i].type,
				 all.entries[i].next);
			cookie = all.entries[i].next;
		}
		if (err == 1)
			settle_position(&list, all.following);
	} while (err == 1 && all.count);
	reply_listing(&list, err);
}
