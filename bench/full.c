// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills a volume until nothing more goes in, and says how much that was, whether what it showed as available was true, how
 * long a refusal takes, and what a full volume still lets people do.
 *
 *	full CASE DIRECTORY BYTES	a mounted filesystem on a device of so many bytes
 *	full CASE IMAGE BYTES		a volume of libtux3, which is there already
 *
 * CASE: large, small, empty, names, values, sparse.  Prints lines "NAME VALUE".
 */
#include <stdbool.h>

#include "full_fs.h"

#define CHUNK		(1u << 20)
#define UNIT		4096u
#define DIR_FILES	1000u
#define SPARSE_FILES	16u
#define VALUE_BYTES	800u
#define SAMPLES		200u
#define REFUSALS	500u

static const struct fs *fs;
static uint64_t device_bytes, payload, units, prepared;
static char data[CHUNK];

/* ---- what each case adds; 0, or -errno ---- */

static int64_t large_file;

static int append(uint64_t len)
{
	int64_t written = fs->write(large_file, data, len, payload);

	if (written < 0)
		return written;
	payload += written;
	return (uint64_t)written < len ? -ENOSPC : 0;
}

/* Less and less, down to a block. */
static int add_large(void)
{
	uint64_t len;
	int err = -ENOSPC;

	for (len = CHUNK; err == -ENOSPC && len >= UNIT; len /= 2)
		err = append(len);
	return err;
}

static int add_file(const char *name, uint64_t bytes)
{
	int64_t file, written = 0;
	char path[300];

	snprintf(path, sizeof(path), "d%llu", (unsigned long long)(units / DIR_FILES));
	if (!(units % DIR_FILES)) {
		int err = fs->mkdir(path);

		if (err && err != -EEXIST)
			return err;
	}
	snprintf(path, sizeof(path), "d%llu/%s%llu", (unsigned long long)(units / DIR_FILES), name, (unsigned long long)units);
	file = fs->open(path);
	if (file < 0)
		return file;
	if (bytes)
		written = fs->write(file, data, bytes, 0);
	fs->close(file);
	if (written != (int64_t)bytes)
		return written < 0 ? written : -ENOSPC;
	payload += bytes;
	units++;
	return 0;
}

static int add_small(void) { return add_file("file", UNIT); }
static int add_empty(void) { return add_file("file", 0); }

/* All in one directory, 200 bytes long. */
static int add_name(void)
{
	char path[300];
	int64_t file;

	snprintf(path, sizeof(path), "names/%0200llu", (unsigned long long)units);
	file = fs->open(path);
	if (file < 0)
		return file;
	fs->close(file);
	units++;
	return 0;
}

/* A file with an extended attribute: more would not fit on some. */
static int add_value(void)
{
	char path[60];
	int64_t file;
	int err;

	snprintf(path, sizeof(path), "names/%llu", (unsigned long long)units);
	file = fs->open(path);
	if (file < 0)
		return file;
	err = fs->set_value(file, "user.value", data, VALUE_BYTES);
	fs->close(file);
	if (err)
		return err;
	payload += VALUE_BYTES;
	units++;
	return 0;
}

static int64_t sparse_files[SPARSE_FILES];
static uint64_t random_state = 7;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state >> 20;	/* low bits tell those of the next one */
}

/* Anywhere in files that are as long as the volume: nearly always a hole. */
static int add_sparse(void)
{
	uint64_t block = random_next() % (device_bytes / UNIT);
	int64_t written = fs->write(sparse_files[random_next() % SPARSE_FILES], data, UNIT, block * UNIT);

	if (written != UNIT)
		return written < 0 ? written : -ENOSPC;
	payload += UNIT;
	units++;
	return 0;
}

static const struct load {
	const char *name;
	int (*add)(void);
} loads[] = {
	{ "large", add_large }, { "small", add_small }, { "empty", add_empty }, { "names", add_name }, { "values", add_value },
	{ "sparse", add_sparse },
};

/* ---- filling ---- */

/* What was available when so much had been added. */
static struct sample {
	uint64_t payload, available, free;
} samples[SAMPLES];

static uint64_t sampled;

static struct space_now space(void)
{
	struct space_now now;

	must(fs->space(&now), "statfs");
	return now;
}

static void sample(uint64_t step)
{
	struct space_now now;

	if (sampled == SAMPLES || payload < sampled * step)
		return;
	now = space();
	samples[sampled++] = (struct sample){ payload, now.available, now.free };
}

static void fill(const struct load *load)
{
	int err = 0;

	while (!err) {
		sample(device_bytes / SAMPLES);
		err = load->add();
	}
	if (err != -ENOSPC && err != -EDQUOT)
		must(err, load->name);
}

static void tell(const char *name, double value)
{
	printf("%s %.6f\n", name, value);
}

static double apart(uint64_t a, uint64_t b)
{
	return 100.0 * (a > b ? a - b : b - a) / device_bytes;
}

/*
 * What was shown against what then went in, at its worst: in percent of the volume.  Free counts as well as available: for root
 * some keep a part.
 */
static void tell_available(void)
{
	double worst = 0, off, off_free;
	uint64_t i;

	for (i = 0; i < sampled; i++) {
		off = apart(samples[i].available, payload - samples[i].payload);
		off_free = apart(samples[i].free, payload - samples[i].payload);
		off = off < off_free ? off : off_free;
		worst = off > worst ? off : worst;
	}
	tell("available_off", worst);
}

static void tell_fullness(const char *when)
{
	struct space_now now = space();
	char name[60];

	snprintf(name, sizeof(name), "payload_%s", when);
	tell(name, 100.0 * (prepared + payload) / device_bytes);
	snprintf(name, sizeof(name), "units_%s", when);
	tell(name, units);
	snprintf(name, sizeof(name), "left_%s", when);
	tell(name, 100.0 * now.free / device_bytes);
	snprintf(name, sizeof(name), "available_%s", when);
	tell(name, 100.0 * now.available / device_bytes);
}

/* ---- when it is full ---- */

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Where nothing is freed in between. */
static void tell_refusals(const char *what, int (*try)(void))
{
	uint64_t ns[REFUSALS], begun;
	uint32_t i, n = 0;
	char name[60];

	for (i = 0; i < REFUSALS; i++) {
		begun = now_ns();
		if (try() == -ENOSPC)
			ns[n++] = now_ns() - begun;
	}
	if (n < REFUSALS / 2)
		return;
	qsort(ns, n, sizeof(*ns), compare);
	snprintf(name, sizeof(name), "refused_%s_us", what);
	tell(name, ns[n / 2] / 1000.0);
	snprintf(name, sizeof(name), "refused_%s_p99_us", what);
	tell(name, ns[n * 99 / 100] / 1000.0);
}

static int try_write(void) { return fs->write(large_file, data, UNIT, 1ull << 33) < 0 ? -ENOSPC : 0; }
static int try_mkdir(void) { return fs->mkdir("refused"); }
static int try_allocate(void) { return fs->fallocate(large_file, FALLOC_FL_KEEP_SIZE, 0, device_bytes); }

/* Whoever has these things here may always do that. */
static void prepare_full(void)
{
	static const char *const files[] = {
		"chmod", "utime", "from", "over", "linked", "shorter", "empty", "punched", "gone", "valued",
	};
	int64_t file;

	for (uint32_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		file = must(fs->open(files[i]), files[i]);
		must(fs->write(file, data, 16 * UNIT, 0), "write");
		prepared += 16 * UNIT;
		if (!strcmp(files[i], "valued"))
			must(fs->set_value(file, "user.value", data, VALUE_BYTES), "setxattr");
		fs->close(file);
	}
	must(fs->link("linked", "link"), "link");
	must(fs->mkdir("removed"), "mkdir");
	must(fs->mkdir("other"), "mkdir");
	must(fs->sync(), "sync");
}

static int with(const char *path, int (*act)(int64_t file))
{
	int64_t file = fs->open(path);
	int err = file < 0 ? file : act(file);

	if (file >= 0)
		fs->close(file);
	return err;
}

static int act_chmod(int64_t file) { return fs->chmod(file, 0600); }
static int act_shorter(int64_t file) { return fs->truncate(file, 5 * UNIT + 7); }
static int act_empty(int64_t file) { return fs->truncate(file, 0); }
static int act_punch(int64_t file)
{
	return fs->fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, UNIT, 8 * UNIT);
}
static int act_unvalue(int64_t file) { return fs->remove_value(file, "user.value"); }

static void tell_refused(uint32_t *refused, const char *what, int err)
{
	if (err) {
		fprintf(stderr, "on the full volume, %s: %s\n", what, strerror(-err));
		++*refused;
	}
}

static void tell_full_operations(void)
{
	uint32_t refused = 0;

	tell_refused(&refused, "chmod", with("chmod", act_chmod));
	tell_refused(&refused, "setting times", with("utime", fs->utime));
	tell_refused(&refused, "rename", fs->rename("from", "to"));
	tell_refused(&refused, "rename to another directory", fs->rename("to", "other/to"));
	tell_refused(&refused, "rename over a file", fs->rename("other/to", "over"));
	tell_refused(&refused, "unlink of a link", fs->unlink("link"));
	tell_refused(&refused, "truncate", with("shorter", act_shorter));
	tell_refused(&refused, "truncate to nothing", with("empty", act_empty));
	tell_refused(&refused, "punch", with("punched", act_punch));
	tell_refused(&refused, "removal of an xattr", with("valued", act_unvalue));
	tell_refused(&refused, "unlink", fs->unlink("gone"));
	tell_refused(&refused, "rmdir", fs->rmdir("removed"));
	tell_refused(&refused, "sync", fs->sync());
	tell("refused_operations", refused);
}

static const struct load *load_begin(const char *name)
{
	char path[20];

	for (uint32_t i = 0; i < SPARSE_FILES && !strcmp(name, "sparse"); i++) {
		snprintf(path, sizeof(path), "sparse%u", i);
		sparse_files[i] = must(fs->open(path), "create");
		must(fs->truncate(sparse_files[i], device_bytes), "truncate");
	}
	large_file = must(fs->open("large"), "create");
	must(fs->mkdir("names"), "mkdir");
	for (uint32_t i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		if (!strcmp(loads[i].name, name))
			return &loads[i];
	}
	die("There is no case \"%s\".", name);
}

static void load_end(const char *name)
{
	for (uint32_t i = 0; i < SPARSE_FILES && !strcmp(name, "sparse"); i++)
		fs->close(sparse_files[i]);
	fs->close(large_file);
	must(fs->end(), "end");
}

int main(int argc, char **argv)
{
	const struct load *load;
	uint64_t begun, before;

	if (argc != 4)
		die("Usage: full CASE DIRECTORY|IMAGE BYTES");
	memset(data, 'x', sizeof(data));
	device_bytes = strtoull(argv[3], NULL, 10);
	fs = fs_begin(argv[2]);
	prepare_full();
	load = load_begin(argv[1]);
	begun = now_ns();
	fill(load);
	tell_fullness("first");
	tell("seconds_first", seconds_since(begun));
	do {		/* what was only reserved may be free now */
		must(fs->sync(), "sync");
		before = units + payload;
		fill(load);
	} while (units + payload > before);
	must(fs->sync(), "sync");
	tell("seconds", seconds_since(begun));
	tell_fullness("end");
	if (load->add == add_large || load->add == add_small || load->add == add_sparse)
		tell_available();
	tell_refusals("write", try_write);
	tell_refusals("mkdir", try_mkdir);
	tell_refusals("fallocate", try_allocate);
	tell_full_operations();
	load_end(argv[1]);
	return 0;
}
