/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listing directories.
 *
 * Plain: names go straight into the reply.  With attributes ("plus"): the names are gathered first and
 * their nodes looked up afterwards, because a node must not be taken inside tux3_readdir.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "tux3_fuse.h"

struct listing {
	fuse_req_t req;
	char *reply;
	size_t used, size;
};

static int add_plain(void *ctx, const struct tux3_dirent *dirent)
{
	struct listing *list = ctx;
	const struct stat stat = { .st_ino = dirent->ino, .st_mode = DTTOIF(dirent->type) };
	size_t need = fuse_add_direntry(list->req, list->reply + list->used, list->size - list->used,
					dirent->name, &stat, dirent->next);

	if (need > list->size - list->used)
		return 1;
	list->used += need;
	return 0;
}

static size_t reply_size(size_t size)
{
	return size < REQUEST_MAX ? size : REQUEST_MAX;
}

static void reply_listing(struct listing *list, int err)
{
	/* What was found before an error is told first; the error comes again with the next call. */
	if (err < 0 && !list->used)
		fuse_reply_err(list->req, -err);
	else
		fuse_reply_buf(list->req, list->reply, list->used);
}

void serve_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct listing list = { .req = req, .reply = worker_reply_buffer(), .size = reply_size(size) };
	uint64_t cookie = off;

	(void)fi;
	reply_listing(&list, tux3_readdir(node_of(ino), &cookie, add_plain, &list));
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
	size_t names_used, room;	/* room: what is left in the reply, at most */
	char names[1 << 14];
};

static int gather(void *ctx, const struct tux3_dirent *dirent)
{
	struct gathered *all = ctx;
	size_t len = strlen(dirent->name) + 1;
	size_t need = fuse_add_direntry_plus(NULL, NULL, 0, dirent->name, NULL, 0);

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
static void add_plus(struct listing *list, struct tux3_node *dir, const char *name, uint64_t ino,
		     unsigned char type, uint64_t next)
{
	struct fuse_entry_param entry = { 0 };
	bool dots = name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
	struct tux3_node *node;

	if (!dots && !tux3_lookup(dir, NULL, name, &node) && fill_entry(&entry, node)) {
		entry.ino = 0;
		tux3_node_put(node, 1);
	}
	if (!entry.ino) {
		entry.attr.st_ino = ino;
		entry.attr.st_mode = DTTOIF(type);
	}
	list->used += fuse_add_direntry_plus(list->req, list->reply + list->used, list->size - list->used,
					     name, &entry, next);
}

void serve_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct listing list = { .req = req, .reply = worker_reply_buffer(), .size = reply_size(size) };
	struct tux3_node *dir = node_of(ino);
	uint64_t cookie = off;
	struct gathered all;
	int err;

	(void)fi;
	do {
		all.count = 0;
		all.names_used = 0;
		all.room = list.size - list.used;
		err = tux3_readdir(dir, &cookie, gather, &all);
		for (unsigned int i = 0; i < all.count; i++) {
			add_plus(&list, dir, all.names + all.entries[i].name, all.entries[i].ino,
				 all.entries[i].type, all.entries[i].next);
			cookie = all.entries[i].next;
		}
	} while (err == 1 && all.count);
	reply_listing(&list, err);
}
