/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 ls-inodes: all inodes of a volume, by number, without looking into any directory: of an image, or of a mounted volume by an
 * ioctl of the module or of tux3-fuse.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "commands.h"
#include "core/inode/inode_walk.h"
#include "core/ioctl.h"

const char ls_inodes_help[] =
"tux3 ls-inodes IMAGE|DIR [--json]\n"
"\n"
"Prints all inodes that have a name, in the order of their numbers: number, mode, links, owner, group,\n"
"size, blocks of 512 bytes, time of the last change of the contents.  No directory is read.  Of a volume\n"
"that is mounted (DIR is any directory of it) the module or the daemon is asked, by root.\n"
"\n"
"  --json                   a JSON list of objects, with generation, project, flags and all times\n"
"\n"
"Examples:\n"
"  tux3 ls-inodes disk.img | sort -rnk6 | head\n"
"  tux3 ls-inodes /mnt --json | jq '[.[].size] | add'\n"
"\n"
"Exit code 0: printed; 1: could not be, or not all; 16: wrong use.\n";

#define PORTION TUX3_IOC_INODES_MAX

static const char *mode_text(u32 mode, char *text)
{
	static const char types[] = "?pc?d?b?-?l?s???", bits[] = "rwxrwxrwx";
	int i;

	text[0] = types[mode >> 12 & 15];
	for (i = 0; i < 9; i++)
		text[1 + i] = mode & 0400 >> i ? bits[i] : '-';
	if (mode & S_ISUID)
		text[3] = mode & S_IXUSR ? 's' : 'S';
	if (mode & S_ISGID)
		text[6] = mode & S_IXGRP ? 's' : 'S';
	if (mode & S_ISVTX)
		text[9] = mode & S_IXOTH ? 't' : 'T';
	text[10] = 0;
	return text;
}

static void print_text(struct show_buffer *out, const struct tux3_ioc_inode *inode)
{
	time_t seconds = inode->mtime;
	char mode[11], when[64] = "?";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	show_printf(out, "%10llu %s %3u %5u %5u %12llu %10llu %s", (unsigned long long)inode->ino, mode_text(inode->mode, mode),
		    inode->nlink, inode->uid, inode->gid, (unsigned long long)inode->size,
		    (unsigned long long)inode->blocks * (inode->block_size >> 9), when);
}

static void print_json(struct show_buffer *out, const struct tux3_ioc_inode *inode)
{
	show_begin(out, NULL);
	show_u64(out, "inode", inode->ino);
	show_octal(out, "mode", inode->mode);
	show_u64(out, "links", inode->nlink);
	show_u64(out, "uid", inode->uid);
	show_u64(out, "gid", inode->gid);
	show_u64(out, "size", inode->size);
	show_u64(out, "blocks_512", inode->blocks * (inode->block_size >> 9));
	show_s64(out, "atime", inode->atime);
	show_u64(out, "atime_nsec", inode->atime_nsec);
	show_s64(out, "mtime", inode->mtime);
	show_u64(out, "mtime_nsec", inode->mtime_nsec);
	show_s64(out, "ctime", inode->ctime);
	show_u64(out, "ctime_nsec", inode->ctime_nsec);
	show_s64(out, "btime", inode->btime);
	show_u64(out, "btime_nsec", inode->btime_nsec);
	show_u64(out, "generation", inode->generation);
	show_u64(out, "project", inode->projid);
	show_hex(out, "xflags", inode->xflags);
	show_u64(out, "rdev_major", inode->rdev_major);
	show_u64(out, "rdev_minor", inode->rdev_minor);
	show_end(out);
}

static void print_inodes(struct stream *stream, const struct tux3_ioc_inode *inodes, u32 count)
{
	struct show_buffer *out;
	u32 i;

	for (i = 0; i < count; i++) {
		out = stream_begin(stream);
		if (out->json)
			print_json(out, &inodes[i]);
		else
			print_text(out, &inodes[i]);
		stream_end(stream);
	}
}

/* ---- where they come from: how many, or -errno ---- */

struct source {
	struct volume *vol;	/* an image */
	int fd;			/* else */
	struct tux3_ioc_inodes request;
	struct inode_seen seen[PORTION];
};

static int next_of_image(struct source *source)
{
	u64 ino = source->request.header.ino;
	int n = inode_walk(source->vol, &ino, source->seen, PORTION), i;

	for (i = 0; i < n; i++)
		inode_seen_to_ioctl(source->vol, &source->seen[i], &source->request.inode[i]);
	source->request.header.ino = ino;
	return n;
}

static int next_inodes(struct source *source)
{
	if (source->vol)
		return next_of_image(source);
	source->request.header.wanted = PORTION;
	return ioctl(source->fd, TUX3_IOC_INODES, &source->request) ? -errno : (int)source->request.header.count;
}

static int print_all(struct source *source, const char *where, bool json)
{
	struct stream stream;
	int n, done;

	if (!stream_init(&stream, json))
		return EXIT_FAILED;
	while ((n = next_inodes(source)) > 0)
		print_inodes(&stream, source->request.inode, n);
	done = stream_exit(&stream);
	if (n == -ENOTTY)
		tool_error("%s is not on a mounted Tux3 volume.", where);
	else if (n)
		tool_error("Inodes from number %llu on cannot be told: %s.", (unsigned long long)source->request.header.ino, strerror(-n));
	return n ? EXIT_FAILED : done;
}

static int list_mounted(struct source *source, const char *where, bool json)
{
	int ret;

	source->fd = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (source->fd < 0) {
		tool_error("%s cannot be opened: %s.", where, strerror(errno));
		return EXIT_FAILED;
	}
	ret = print_all(source, where, json);
	close(source->fd);
	return ret;
}

static int list_image(struct source *source, const char *where, bool json)
{
	struct tool_volume tool = { };
	int ret = command_open(where, &tool);

	source->vol = tool.vol;
	if (!ret)
		ret = print_all(source, where, json);
	tool_close(&tool);
	return ret;
}

static int list_inodes(const char *where, bool json)
{
	struct source *source = calloc(1, sizeof(*source));
	struct stat st;
	int ret;

	if (!source) {
		tool_error("Out of memory.");
		return EXIT_FAILED;
	}
	ret = !stat(where, &st) && S_ISDIR(st.st_mode) ? list_mounted(source, where, json) : list_image(source, where, json);
	free(source);
	return ret;
}

int command_ls_inodes(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	bool json = false;
	int option;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(ls_inodes_help, EXIT_FAILED);
		if (option != 'j')
			return tool_usage("See tux3 help ls-inodes.");
		json = true;
	}
	if (argc - optind != 1)
		return tool_usage("A volume is wanted; see tux3 help ls-inodes.");
	return list_inodes(argv[optind], json);
}
