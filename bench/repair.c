// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A tree in which each file can be told from all others by its content, and what is there of it after damage and repair.
 *
 *	repair make DIRECTORY PATHS		make it, on a mounted filesystem
 *	repair check DIRECTORY|IMAGE PATHS	look at all that is there; an image is read through libtux3
 *
 * Path number i ends in i.  Of each 20 one is another name of the file before it, one a symlink, two have a small extended
 * attribute; of each 50 one has a large one.  Files have a header with their number, and then what follows from it; an empty one
 * is known by its mtime.  Prints what became of each path, a letter for each:
 *
 *	R  path and content are right
 *	E  not so, but the content is somewhere else, whole
 *	W  the path is there with wrong content, and no error tells so (w: and the content is somewhere else)
 *	X  the path is there, and reading it is an error
 *	L  gone
 *
 * and in a second line the same of its extended attribute: R, W (another value), L, or - if it has none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bench.h"

enum { MAGIC = 0x52336254, SIZE_MAX_BYTES = 64 << 10, PATH_LEN = 4096, VALUE_MAX = 3000, DEPTH_MAX = 64 };
enum { EPOCH = 1000000000, PER_DIRECTORY = 40 };
static const char xattr_name[] = "user.bench";

struct header {
	uint32_t magic, number;
};

static uint64_t paths;
static char *fate, *value_fate;
static bool *whole;		/* the content of this number is somewhere */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* ---- what belongs where ---- */

static bool is_link(uint64_t i) { return i % 20 == 7; }
static bool is_symlink(uint64_t i) { return i % 20 == 13; }
/* Whose content it is. */
static uint64_t content_of(uint64_t i) { return is_link(i) ? i - 1 : i; }

static void path_of(uint64_t i, char *path, size_t size, bool directory)
{
	uint64_t dir = i / PER_DIRECTORY;
	int len = snprintf(path, size, "part%llu/section%llu/folder%llu", (unsigned long long)dir / 100,
			   (unsigned long long)dir / 10 % 10, (unsigned long long)dir % 10);

	if (!directory)
		snprintf(path + len, size - len, "/%s-%06llu", is_symlink(i) ? "symlink" : is_link(i) ? "name" : "file",
			 (unsigned long long)i);
}

static uint64_t size_of(uint64_t i)
{
	uint64_t r = mix(i + 1), kind = r % 100, least = sizeof(struct header);

	r = r >> 8;
	if (kind < 5)
		return 0;
	if (kind < 60)
		return least + r % 1000;
	if (kind < 92)
		return 1024 + r % 7168;
	if (kind < 99)
		return 8192 + r % 24576;
	return SIZE_MAX_BYTES - r % 32768;
}

static void fill(uint64_t i, unsigned char *data, uint64_t size)
{
	struct header header = { MAGIC, i };
	uint64_t at, word;

	if (!size)
		return;
	memcpy(data, &header, sizeof(header));
	for (at = sizeof(header); at < size; at += sizeof(word)) {
		word = mix(i << 32 | at);
		memcpy(data + at, &word, size - at < sizeof(word) ? size - at : sizeof(word));
	}
}

static void target_of(uint64_t i, char *target, size_t size)
{
	snprintf(target, size, "../../nowhere/%016llx/%llu", (unsigned long long)mix(i), (unsigned long long)i);
}

/* 0: it has none. */
static uint64_t value_size(uint64_t i)
{
	if (is_link(i) || is_symlink(i))
		return 0;
	return i % 50 == 5 ? 2000 + mix(i) % (VALUE_MAX - 2000) : i % 10 == 3 ? 8 + mix(i) % 120 : 0;
}

static void value_of(uint64_t i, unsigned char *value, uint64_t size)
{
	for (uint64_t at = 0; at < size; at++)
		value[at] = mix(i + at);
}

/* ---- make ---- */

static void make_file(uint64_t i, const char *path)
{
	static unsigned char data[SIZE_MAX_BYTES + sizeof(uint64_t)], value[VALUE_MAX];
	struct timespec times[2] = { { .tv_sec = EPOCH + i }, { .tv_sec = EPOCH + i } };
	uint64_t size = size_of(i), value_len = value_size(i);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	must(fd < 0 ? -errno : 0, path);
	fill(i, data, size);
	if (write(fd, data, size) != (ssize_t)size)
		die("%s: it cannot be written", path);
	value_of(i, value, value_len);
	if (value_len)
		must(fsetxattr(fd, xattr_name, value, value_len, 0) ? -errno : 0, "fsetxattr");
	must(futimens(fd, times) ? -errno : 0, "futimens");
	must(close(fd) ? -errno : 0, "close");
}

static void make_directory(const char *path)
{
	char part[PATH_LEN];

	for (const char *end = path; (end = strchr(end, '/')); end++) {
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		must(mkdir(part, 0755) && errno != EEXIST ? -errno : 0, part);
	}
	must(mkdir(path, 0755) ? -errno : 0, path);
}

static void make(const char *where)
{
	char path[PATH_LEN], other[PATH_LEN];

	must(chdir(where) ? -errno : 0, where);
	for (uint64_t i = 0; i < paths; i++) {
		path_of(i, path, sizeof(path), true);
		if (i % PER_DIRECTORY == 0)
			make_directory(path);
		path_of(i, path, sizeof(path), false);
		if (is_symlink(i)) {
			target_of(i, other, sizeof(other));
			must(symlink(other, path) ? -errno : 0, path);
		} else if (is_link(i)) {
			path_of(i - 1, other, sizeof(other), false);
			must(link(other, path) ? -errno : 0, path);
		} else {
			make_file(i, path);
		}
	}
}

/* ---- check ---- */

/* One thing that is there. */
struct seen {
	const char *path, *name;
	uint32_t mode;
	int64_t mtime;
	int64_t size;		/* of data, or -errno of what could not be read */
	unsigned char data[SIZE_MAX_BYTES + 2 * sizeof(uint64_t)];
	int64_t value_len;	/* or -errno */
	unsigned char value[1 << 16];
};

static struct seen seen;

/* The number that the path would have, or -1. */
static int64_t place_of(const char *path, const char *name)
{
	const char *dash = strrchr(name, '-');
	char expected[PATH_LEN], *end;
	uint64_t i;

	if (!dash || !dash[1])
		return -1;
	i = strtoull(dash + 1, &end, 10);
	if (*end || i >= paths)
		return -1;
	path_of(i, expected, sizeof(expected), false);
	return strcmp(expected, path) ? -1 : (int64_t)i;
}

/* Whose content it is, whole; or -1. */
static int64_t known_content(void)
{
	static unsigned char expected[SIZE_MAX_BYTES + sizeof(uint64_t)];
	struct header header;
	const char *slash;
	char target[PATH_LEN];
	uint64_t i;

	if (seen.size < 0)
		return -1;
	if (S_ISLNK(seen.mode)) {
		seen.data[seen.size] = 0;
		slash = strrchr((char *)seen.data, '/');
		i = slash ? strtoull(slash + 1, NULL, 10) : paths;
		target_of(i, target, sizeof(target));
		return i < paths && is_symlink(i) && !strcmp(target, (char *)seen.data) ? (int64_t)i : -1;
	}
	if (seen.size && seen.size < (int64_t)sizeof(header))
		return -1;
	memcpy(&header, seen.data, sizeof(header));
	i = seen.size ? header.number : (uint64_t)(seen.mtime - EPOCH);
	if (i >= paths || is_link(i) || is_symlink(i) || size_of(i) != (uint64_t)seen.size)
		return -1;
	fill(i, expected, seen.size);
	return memcmp(seen.data, expected, seen.size) ? -1 : (int64_t)i;
}

static void judge_value(uint64_t i)
{
	unsigned char value[VALUE_MAX];
	uint64_t size = value_size(i);

	if (!size)
		return;
	value_of(i, value, size);
	if (seen.value_len >= 0)
		value_fate[i] = seen.value_len == (int64_t)size && !memcmp(value, seen.value, size) ? 'R' : 'W';
}

static void judge(void)
{
	int64_t place = place_of(seen.path, seen.name), content = known_content();

	if (content >= 0)
		whole[content] = true;
	if (place < 0)
		return;
	/* What a place without data says of itself is its size; an empty file of another time is right there, too. */
	if (content == (int64_t)content_of(place) ||
	    (seen.size == 0 && S_ISREG(seen.mode) && !is_symlink(place) && !size_of(content_of(place))))
		fate[place] = 'R';
	else
		fate[place] = seen.size < 0 ? 'X' : 'W';
	if (seen.size >= 0 || content >= 0)
		judge_value(place);
}

/* ---- what is there, on a mounted filesystem ---- */

static void walk_mounted(char *path, unsigned int depth);

static void read_mounted(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	ssize_t len;

	seen.size = fd < 0 ? -errno : 0;
	seen.value_len = -ENODATA;
	while (fd >= 0) {
		len = read(fd, seen.data + seen.size, SIZE_MAX_BYTES + 1 - seen.size);
		if (len < 0)
			seen.size = -errno;
		if (len <= 0)
			break;
		seen.size += len;
	}
	if (fd >= 0) {
		len = fgetxattr(fd, xattr_name, seen.value, sizeof(seen.value));
		seen.value_len = len < 0 ? -errno : len;
		close(fd);
	}
}

static void entry_mounted(char *path, unsigned int depth)
{
	struct stat stat_of;

	seen.path = path;
	seen.name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (lstat(path, &stat_of)) {
		/* A name that leads nowhere. */
		seen.mode = 0;
		seen.size = -errno;
		judge();
		return;
	}
	if (S_ISDIR(stat_of.st_mode)) {
		walk_mounted(path, depth + 1);
		return;
	}
	seen.mode = stat_of.st_mode;
	seen.mtime = stat_of.st_mtime;
	if (S_ISLNK(stat_of.st_mode)) {
		seen.size = readlink(path, (char *)seen.data, PATH_LEN - 1);
		seen.size = seen.size < 0 ? -errno : seen.size;
		seen.value_len = -ENODATA;
	} else if (S_ISREG(stat_of.st_mode)) {
		read_mounted(path);
	} else {
		return;
	}
	judge();
}

static void walk_mounted(char *path, unsigned int depth)
{
	DIR *dir = depth < DEPTH_MAX ? opendir(depth ? path : ".") : NULL;
	size_t len = strlen(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    len + strlen(entry->d_name) + 2 > PATH_LEN)
			continue;
		sprintf(path + len, "%s%s", len ? "/" : "", entry->d_name);
		entry_mounted(path, depth);
		path[len] = 0;
	}
	if (dir)
		closedir(dir);
}

/* ---- the same through libtux3 ---- */

struct listing {
	struct tux3_node *dir;
	char *path;
	unsigned int depth;
};

static void walk_volume(struct tux3_node *dir, char *path, unsigned int depth);

static void read_node(struct tux3_node *node)
{
	seen.size = S_ISLNK(seen.mode) ? tux3_readlink(node, (char *)seen.data, PATH_LEN - 1) :
					 tux3_read(node, seen.data, SIZE_MAX_BYTES + 1, 0);
	/* A read that ends before an error is no read of all. */
	if (seen.size >= 0 && S_ISREG(seen.mode)) {
		struct tux3_stat stat;
		int err = tux3_stat_node(node, &stat);

		if (err || (seen.size < (int64_t)stat.size && seen.size <= SIZE_MAX_BYTES))
			seen.size = err ? err : -EIO;
	}
	seen.value_len = tux3_getxattr(node, xattr_name, seen.value, sizeof(seen.value));
}

static int entry_volume(void *ctx, const struct tux3_dirent *entry)
{
	struct listing *listing = ctx;
	size_t len = strlen(listing->path);
	struct tux3_node *node = NULL;
	struct tux3_stat stat;
	int err;

	if (!strcmp(entry->name, ".") || !strcmp(entry->name, "..") || len + strlen(entry->name) + 2 > PATH_LEN)
		return 0;
	sprintf(listing->path + len, "%s%s", len ? "/" : "", entry->name);
	err = tux3_lookup(listing->dir, NULL, entry->name, &node);
	if (!err)
		err = tux3_stat_node(node, &stat);
	if (!err && S_ISDIR(stat.mode)) {
		walk_volume(node, listing->path, listing->depth + 1);
	} else {
		seen.path = listing->path;
		seen.name = listing->path + len + !!len;
		seen.mode = err ? 0 : stat.mode;
		seen.mtime = err ? 0 : stat.mtime.tv_sec;
		seen.size = err;
		if (!err)
			read_node(node);
		judge();
	}
	if (node)
		tux3_node_put(node, 1);
	listing->path[len] = 0;
	return 0;
}

static void walk_volume(struct tux3_node *dir, char *path, unsigned int depth)
{
	struct listing listing = { .dir = dir, .path = path, .depth = depth };
	uint64_t cookie = 0;

	if (depth < DEPTH_MAX)
		tux3_readdir(dir, &cookie, entry_volume, &listing);
}

/* ---- */

static void look_at(const char *where)
{
	struct tux3_options options = { .read_only = true, .atime = 3 };
	char path[PATH_LEN] = "";
	struct stat stat_of;
	struct tux3 *volume;
	struct tux3_node *root;

	must(stat(where, &stat_of) ? -errno : 0, where);
	if (S_ISDIR(stat_of.st_mode)) {
		must(chdir(where) ? -errno : 0, where);
		walk_mounted(path, 0);
		return;
	}
	volume = must_open(where, &options);
	root = tux3_root(volume);
	walk_volume(root, path, 0);
	tux3_node_put(root, 1);
	tux3_close(volume);
}

static void check(const char *where)
{
	fate = malloc(paths + 1);
	value_fate = malloc(paths + 1);
	whole = calloc(paths + 1, sizeof(*whole));
	if (!fate || !value_fate || !whole)
		die("out of memory");
	for (uint64_t i = 0; i < paths; i++) {
		fate[i] = 'L';
		value_fate[i] = value_size(i) ? 'L' : '-';
	}
	fate[paths] = value_fate[paths] = 0;
	look_at(where);
	for (uint64_t i = 0; i < paths; i++) {
		if (fate[i] != 'R' && whole[content_of(i)])
			fate[i] = fate[i] == 'W' ? 'w' : 'E';
	}
	printf("%s\n%s\n", fate, value_fate);
}

int main(int argc, char **argv)
{
	if (argc != 4 || (strcmp(argv[1], "make") && strcmp(argv[1], "check")))
		die("Usage: repair make DIRECTORY PATHS | repair check DIRECTORY|IMAGE PATHS");
	paths = strtoull(argv[3], NULL, 10);
	if (!strcmp(argv[1], "make"))
		make(argv[2]);
	else
		check(argv[2]);
	return 0;
}
