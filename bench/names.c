// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Files made and removed by their names, and mail delivered, by one process.  bench/run names and bulkstat run it.
 *
 *	names DIRECTORY create FILES DIRECTORIES BYTES	so many files, of so many bytes each, one directory after the other
 *	names DIRECTORY unlink FILES DIRECTORIES	all of them, in the order in which they were made
 *	names DIRECTORY deliver MAILS			so many files of 16 KiB, made in tmp, written in pieces of 778 bytes,
 *							then renamed into new
 *	names DIRECTORY remove MAILS			all of them, in the order in which they were made
 */
#include <fcntl.h>
#include <unistd.h>

#include "bench.h"

#define MAIL_BYTES (16u << 10)
#define PIECE 778u
#define FILE_NAME "dir%llu/file%llu"
#define MAIL_NAME "%s/mail%llu"

typedef unsigned long long ull;

static void make_directory(const char *name)
{
	if (mkdir(name, 0755) && errno != EEXIST)
		must_errno(-1, name);
}

static int make_file(const char *path, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);

	must_errno(fd, path);
	return fd;
}

static void must_write(int fd, const char *data, size_t bytes, const char *path)
{
	if (write(fd, data, bytes) != (ssize_t)bytes)
		die("%s: %s", path, strerror(errno));
}

static void create(uint64_t files, uint64_t directories, uint64_t bytes)
{
	char *data = calloc(1, bytes + 1), path[64];

	for (uint64_t i = 0; i < directories; i++) {
		snprintf(path, sizeof(path), "dir%llu", (ull)i);
		make_directory(path);
	}
	for (uint64_t i = 0; i < files; i++) {
		int fd;

		snprintf(path, sizeof(path), FILE_NAME, (ull)(i * directories / files), (ull)i);
		fd = make_file(path, 0644);
		if (bytes)
			must_write(fd, data, bytes, path);
		must_errno(close(fd), path);
	}
	free(data);
}

static void remove_files(uint64_t files, uint64_t directories)
{
	char path[64];

	for (uint64_t i = 0; i < files; i++) {
		snprintf(path, sizeof(path), FILE_NAME, (ull)(i * directories / files), (ull)i);
		must_errno(unlink(path), path);
	}
}

static void deliver(uint64_t mails)
{
	static char data[PIECE];
	char path[64], new_path[64];

	memset(data, 'x', sizeof(data));
	make_directory("tmp");
	make_directory("new");
	for (uint64_t i = 0; i < mails; i++) {
		int fd;

		snprintf(path, sizeof(path), MAIL_NAME, "tmp", (ull)i);
		snprintf(new_path, sizeof(new_path), MAIL_NAME, "new", (ull)i);
		fd = make_file(path, 0600);
		for (uint32_t at = 0; at < MAIL_BYTES; at += PIECE)
			must_write(fd, data, at + PIECE < MAIL_BYTES ? PIECE : MAIL_BYTES - at, path);
		must_errno(close(fd), path);
		must_errno(rename(path, new_path), path);
	}
}

static void remove_mails(uint64_t mails)
{
	char path[64];

	for (uint64_t i = 0; i < mails; i++) {
		snprintf(path, sizeof(path), MAIL_NAME, "new", (ull)i);
		must_errno(unlink(path), path);
	}
}

int main(int argc, char **argv)
{
	uint64_t number[3] = { 0 };

	for (int i = 3; i < argc && i < 6; i++)
		number[i - 3] = strtoull(argv[i], NULL, 10);
	if (argc >= 3)
		must_errno(chdir(argv[1]), argv[1]);
	if (argc == 6 && !strcmp(argv[2], "create"))
		create(number[0], number[1], number[2]);
	else if (argc == 5 && !strcmp(argv[2], "unlink"))
		remove_files(number[0], number[1]);
	else if (argc == 4 && !strcmp(argv[2], "deliver"))
		deliver(number[0]);
	else if (argc == 4 && !strcmp(argv[2], "remove"))
		remove_mails(number[0]);
	else
		die("Usage: names DIRECTORY create FILES DIRECTORIES BYTES | unlink FILES DIRECTORIES | deliver MAILS | remove MAILS");
	return 0;
}
