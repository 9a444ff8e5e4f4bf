/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lists a directory as programs of 32 bits do, which know positions of 31 bits: by the system calls that such programs have.
 * In the virtual machine:
 *
 *	list_short DIR
 *
 * What readdir(3), telldir(3) and seekdir(3) do there must give the same names as with positions of 64 bits, each once.
 * Exit status 0: so it is; 77: the kernel has no such system calls.
 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHORT_GETDENTS64 220
#define SHORT_LLSEEK	 140
#define MAX_NAMES	 20000u

struct entry {
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

struct names {
	unsigned int count;
	struct {
		char name[32];
		int64_t off;
	} at[MAX_NAMES];
};

static char *buffer;		/* where addresses of 32 bits reach */

static long short_syscall(long number, long a, long b, long c, long d, long e)
{
#ifdef __x86_64__
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "0"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)ret;
#else
	exit(77);
#endif
}

static void seek(int fd, bool is_short, int64_t off)
{
	long ret = is_short ? short_syscall(SHORT_LLSEEK, fd, off >> 32, off & UINT32_MAX, (long)buffer, SEEK_SET) :
			      lseek(fd, off, SEEK_SET);

	if (ret < 0)
		errx(1, "lseek to %lld", (long long)off);
}

/* Up to max names from the file's position on. */
static void list(int fd, bool is_short, unsigned int bytes, unsigned int max, struct names *names)
{
	for (names->count = 0; names->count < max;) {
		long got = is_short ? short_syscall(SHORT_GETDENTS64, fd, (long)buffer, bytes, 0, 0) :
				      syscall(SYS_getdents64, fd, buffer, bytes), at;

		if (got < 0)
			errx(1, "getdents64: %s", strerror(is_short ? -got : 1));
		if (!got)
			return;
		for (at = 0; at < got && names->count < max; at += ((struct entry *)(buffer + at))->len) {
			struct entry *entry = (struct entry *)(buffer + at);

			if (is_short && (entry->off < 0 || entry->off > INT32_MAX))
				errx(1, "behind %s is position %lld, which is too large", entry->name, (long long)entry->off);
			if (names->count == MAX_NAMES)
				errx(1, "there is no end");
			snprintf(names->at[names->count].name, sizeof(names->at[0].name), "%s", entry->name);
			names->at[names->count++].off = entry->off;
		}
	}
}

static void compare(const struct names *a, const struct names *b, const char *what)
{
	unsigned int i;

	for (i = 0; i < a->count && i < b->count; i++)
		if (strcmp(a->at[i].name, b->at[i].name))
			errx(1, "%s: entry %u is %s instead of %s", what, i, b->at[i].name, a->at[i].name);
	if (a->count != b->count)
		errx(1, "%s: %u entries instead of %u", what, b->count, a->count);
}

static void not_there(int number)
{
	_exit(77);
}

int main(int argc, char **argv)
{
	static struct names all, again, rest;
	static const unsigned int sizes[] = { 64, 300, 4096, 65536 };
	unsigned int i, k;
	int fd;

	if (argc != 2)
		errx(2, "usage: list_short DIR");
	signal(SIGSEGV, not_there);
	buffer = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	if (buffer == MAP_FAILED || fd < 0)
		err(1, "%s", argv[1]);
	list(fd, false, 65536, UINT32_MAX, &all);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		seek(fd, true, 0);
		list(fd, true, sizes[i], UINT32_MAX, &again);
		compare(&all, &again, "listed");
		list(fd, true, sizes[i], UINT32_MAX, &rest);
		if (rest.count)
			errx(1, "%u entries behind the end", rest.count);
	}
	/* Of names that are alike in 31 bits, which are few, one may come again. */
	for (i = 0; i + 1 < all.count; i += 1 + all.count / 100) {
		seek(fd, true, again.at[i].off);
		list(fd, true, 4096, 3, &rest);
		for (k = 0; k < rest.count && strcmp(rest.at[k].name, all.at[i + 1].name); k++)
			;
		if (k == rest.count)
			errx(1, "from position %lld on %s does not come", (long long)again.at[i].off, all.at[i + 1].name);
	}
	printf("%u entries\n", all.count);
	return 0;
}
