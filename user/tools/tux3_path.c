/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 path: the paths of an inode, by its parent pointers and those of the directories above it.  No directory is read, so this
 * takes a look into the tree for each component, and works when directories are damaged.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "commands.h"
#include "core/format/chain.h"
#include "core/inode/path.h"
#include "core/ioctl.h"

const char path_help[] =
"tux3 path IMAGE|DIR NUMBER [--json]\n"
"\n"
"Prints the path of an inode, whose number a message may have told.  Of a volume that is mounted (DIR is\n"
"any directory of it) the module or the daemon is asked, by root; paths begin at the volume's root.\n"
"A file with several names has a line for each.  A path with control characters is quoted.\n"
"\n"
"  --json                   a JSON list of objects\n"
"\n"
"Examples:\n"
"  tux3 path disk.img 1037\n"
"  tux3 path /mnt 1037\n"
"  tux3 path disk.img 1037 --json | jq -r '.[].path'\n"
"\n"
"Exit code 0: printed; 1: it has none, or not all can be told; 16: wrong use.\n";

#define PATH_BYTES	(256u << 10)	/* quoted, it must fit the stream */

/* A path is made from its end. */
struct path {
	struct volume *vol;
	struct stream *stream;
	u64 ino;		/* the one that is asked for */
	u8 *parents;		/* copies of its parent pointers, a chain of so many bytes */
	u32 bytes;
	struct path_text text;	/* of PATH_BYTES */
	int err;
};

static int for_each_parent(struct volume *vol, u64 ino, tree_item_fn fn, void *ctx)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_PARENT, 0), to = tree_key(ino, TUX3_ITEM_PARENT, U64_MAX);

	return tree_scan(vol, &from, &to, fn, ctx);
}

static void tell_why(const struct path *path, u64 dir, int err)
{
	struct show_buffer below;
	char text[512];

	show_init(&below, text, sizeof(text), false);
	show_bytes_short(&below, NULL, path->text.text + path->text.at, PATH_BYTES - path->text.at);
	if (err == -ENAMETOOLONG)
		tool_error("Inode %llu: its path is longer than %u bytes, or leads round in a circle: see fsck.tux3.",
			   (unsigned long long)path->ino, PATH_BYTES);
	else
		tool_error("Inode %llu: above %s is inode %llu, and that %s: see fsck.tux3.", (unsigned long long)path->ino,
			   text, (unsigned long long)dir, err == -ENOENT ? "has no parent pointer" : "has one that cannot be read");
}

static bool is_plain(const char *text, size_t len)
{
	while (len && !iscntrl((unsigned char)*text)) {
		text++;
		len--;
	}
	return !len;
}

static void path_print(struct path *path)
{
	struct show_buffer *out = stream_begin(path->stream);
	const char *text = path->text.text + path->text.at;
	size_t len = PATH_BYTES - path->text.at;

	if (out->json) {
		show_begin(out, NULL);
		show_u64(out, "inode", path->ino);
		show_bytes(out, "path", text, len);
		show_end(out);
	} else if (is_plain(text, len)) {
		show_printf(out, "%.*s", (int)len, text);
	} else {
		show_bytes(out, NULL, text, len);
	}
	stream_end(path->stream);
}

/* Copied, because the tree is not to be read meanwhile. */
static int copy_parents(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct path *path = ctx;
	struct chain chain = chain_of(data, len);
	const struct disk_parent *parent;

	while ((parent = chain_next_parent(&chain))) {
		u8 *all = realloc(path->parents, path->bytes + chain.size);

		if (!all)
			return -ENOMEM;
		memcpy(all + path->bytes, parent, chain.size);
		path->parents = all;
		path->bytes += chain.size;
	}
	if (!chain.bad)
		return 0;
	tool_error("Inode %llu has a parent pointer that cannot be read: see fsck.tux3.", (unsigned long long)path->ino);
	path->err = -EUCLEAN;
	return 0;
}

/* A name whose path cannot be told does not keep the others from being told. */
static void print_names(struct path *path)
{
	struct chain chain = chain_of(path->parents, path->bytes);
	const struct disk_parent *parent;

	while ((parent = chain_next_parent(&chain))) {
		u64 dir = get_unaligned_le64(&parent->dir);
		int err;

		path->text.at = PATH_BYTES;
		err = path_prepend(&path->text, parent->name, parent->len);
		if (!err)
			err = path_above(path->vol, &path->text, &dir);
		if (err) {
			tell_why(path, dir, err);
			path->err = err;
		} else {
			path_print(path);
		}
	}
}

static int no_name(struct path *path)
{
	tool_error(command_inode_is_there(path->vol, path->ino) ?
		   "Inode %llu has no name: it is part of the volume itself, or was deleted while in use." :
		   "There is no inode %llu.", (unsigned long long)path->ino);
	return EXIT_FAILED;
}

static int print_paths(struct path *path)
{
	int err;

	if (path->ino == TUX3_INO_ROOT) {
		path->text.at = PATH_BYTES;
		path_prepend(&path->text, "", 0);
		path_print(path);
		return EXIT_CLEAN;
	}
	err = for_each_parent(path->vol, path->ino, copy_parents, path);
	if (err) {
		tool_error("Not all names of inode %llu can be read: %s.", (unsigned long long)path->ino, strerror(-err));
		return EXIT_FAILED;
	}
	if (!path->bytes && !path->err)
		return no_name(path);
	print_names(path);
	return path->err ? EXIT_FAILED : EXIT_CLEAN;
}

/* ---- of a mounted volume ---- */

static int tell_failed(const struct path *path, const char *dir, int err)
{
	if (err == ENOTTY)
		tool_error("%s is not on a mounted Tux3 volume.", dir);
	else if (err == ESTALE)
		tool_error("There is no inode %llu with a name.", (unsigned long long)path->ino);
	else if (err == ENAMETOOLONG)
		tool_error("Inode %llu: its path is longer than %u bytes, and can be told once the volume is not mounted, or leads round in a circle: see fsck.tux3.",
			   (unsigned long long)path->ino, TUX3_IOC_PATH_MAX - 1);
	else
		tool_error("Inode %llu: its path cannot be told: %s.", (unsigned long long)path->ino, strerror(err));
	return EXIT_FAILED;
}

static int print_mounted(struct path *path, const char *dir, int fd)
{
	struct tux3_ioc_path request = { .ino = path->ino };
	bool any = false;

	while (!ioctl(fd, TUX3_IOC_PATH, &request)) {
		if (!request.len)
			return any ? EXIT_CLEAN : tell_failed(path, dir, ESTALE);
		any = true;
		path->text.at = PATH_BYTES - request.len;
		memcpy(path->text.text + path->text.at, request.path, request.len);
		path_print(path);
	}
	return tell_failed(path, dir, errno);
}

static int print_all(struct path *path, bool json, const char *dir, int fd)
{
	struct stream stream;
	int ret, done;

	if (!stream_init(&stream, json))
		return EXIT_FAILED;
	path->stream = &stream;
	ret = dir ? print_mounted(path, dir, fd) : print_paths(path);
	done = stream_exit(&stream);
	return done ? done : ret;
}

static int path_of_mounted(struct path *path, bool json, const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;

	if (fd < 0) {
		tool_error("%s cannot be opened: %s.", dir, strerror(errno));
		return EXIT_FAILED;
	}
	ret = print_all(path, json, dir, fd);
	close(fd);
	return ret;
}

/* ---- the command ---- */

static int path_of_image(struct path *path, bool json, const char *image)
{
	struct tool_volume tool = { };
	int ret = command_open(image, &tool);

	path->vol = tool.vol;
	if (!ret)
		ret = print_all(path, json, NULL, -1);
	tool_close(&tool);
	return ret;
}

static int path_command(const char *where, u64 ino, bool json)
{
	struct path path = { .ino = ino, .text.text = malloc(PATH_BYTES) };
	struct stat st;
	int ret;

	if (!path.text.text) {
		tool_error("Out of memory.");
		return EXIT_FAILED;
	}
	ret = !stat(where, &st) && S_ISDIR(st.st_mode) ? path_of_mounted(&path, json, where) : path_of_image(&path, json, where);
	free(path.parents);
	free(path.text.text);
	return ret;
}

int command_path(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	bool json = false;
	int option;
	u64 ino;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(path_help, EXIT_FAILED);
		if (option != 'j')
			return tool_usage("See tux3 help path.");
		json = true;
	}
	if (argc - optind != 2)
		return tool_usage("A volume and an inode number are wanted; see tux3 help path.");
	if (!parse_number(argv[optind + 1], &ino) || ino > TUX3_INO_MAX)
		return tool_usage("\"%s\" is no inode number.", argv[optind + 1]);
	return path_command(argv[optind], ino, json);
}
